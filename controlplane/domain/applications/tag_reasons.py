"""Why sessions of a tag cannot start in a region, in words for callers. Pure.

The words name no address or path of a host, and quote nothing of its engine.
"""

from collections.abc import Collection, Iterable, Mapping

from controlplane.domain.applications.images import UNKNOWN, can_run
from tiltyard.contract import ErrorReason

MOST_PLATFORMS = 10  # That are named

UNREACHABLE = "no host of the region answers"

_OF_PULLS: Mapping[ErrorReason | None, str] = {
    ErrorReason.IMAGE_NOT_FOUND: "the registry does not have its image, or denies access to it",
    ErrorReason.IMAGE_CANNOT_RUN: "its image is not for the platform of the hosts",
    ErrorReason.REGISTRY_UNAVAILABLE: "the registry cannot be reached from the hosts, sends an"
    " image that cannot be used, or denies access",
    ErrorReason.REGISTRY_TIMEOUT: "the registry does not answer the hosts in time, or sends its"
    " image too slowly",
    ErrorReason.DISK_FULL: "",  # the state of the pull says so
    ErrorReason.NOT_ALLOWED: "the hosts may not pull from its registry",
}
_OTHER = "the hosts failed to pull its image: the operator sees the cause"


def describe_pull(reason: ErrorReason | None) -> str:
    """Describe a failed pull by the reason that its host gave."""
    return _OF_PULLS.get(reason, _OTHER)


def describe_no_host(region: str, node_pool: str) -> str:
    """Say that a region has no host in a node pool."""
    return f"the region {region} has no host in the node pool {node_pool}"


def describe_mismatch(images: Iterable[str], hosts: Collection[str]) -> str:
    """Say that no host can run an image; "" if one may.

    `images` are the platforms that it is for, `hosts` those of all hosts, UNKNOWN for a host that
    has not reported one.
    """
    platforms = list(images)
    if not hosts or UNKNOWN in hosts or any(can_run(host, platforms) for host in hosts):
        return ""
    return f"its image is for {_listed(platforms)}, and the hosts are {_listed(hosts)}"


def _listed(platforms: Iterable[str]) -> str:
    names = sorted(set(platforms))
    more = ", ..." if len(names) > MOST_PLATFORMS else ""
    return ", ".join(names[:MOST_PLATFORMS]) + more
