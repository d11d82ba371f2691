"""Events of regions, node pools, registries and the database."""

from collections.abc import Sequence

from controlplane.domain.events.event import OperatorEvent
from tiltyard.records import record


@record(frozen=True, slots=True)
class RegionEvent(OperatorEvent):
    """An event of a region."""

    object_type = "the region"


@record(frozen=True, slots=True, kw_only=True)
class RegionCreated(RegionEvent):
    """A region was created."""

    kind = "region.created"


@record(frozen=True, slots=True, kw_only=True)
class RegionRemoved(RegionEvent):
    """A region was removed."""

    kind = "region.removed"


@record(frozen=True, slots=True)
class NodePoolEvent(OperatorEvent):
    """An event of a node pool."""

    object_type = "the node pool"


@record(frozen=True, slots=True, kw_only=True)
class NodePoolSet(NodePoolEvent):
    """A node pool was created, or its rules were changed."""

    kind = "node_pool.set"

    strategy: str
    host_network: bool
    capabilities: Sequence[str]


@record(frozen=True, slots=True, kw_only=True)
class NodePoolRemoved(NodePoolEvent):
    """A node pool was removed."""

    kind = "node_pool.removed"


@record(frozen=True, slots=True)
class RegistryEvent(OperatorEvent):
    """An event of a registry."""

    object_type = "the registry"


@record(frozen=True, slots=True, kw_only=True)
class RegistrySet(RegistryEvent):
    """A registry was created or changed.

    `passwordGiven` is whether a new password was set, `ca` whether there is a certificate of an
    authority.
    """

    kind = "registry.set"

    address: str
    aliases: Sequence[str]
    username: str | None
    password_given: bool
    auth_hosts: Sequence[str]
    private: bool
    ca: bool


@record(frozen=True, slots=True, kw_only=True)
class RegistryRemoved(RegistryEvent):
    """A registry was removed."""

    kind = "registry.removed"


REMOVED = {
    "region": RegionRemoved,
    "node_pool": NodePoolRemoved,
    "registry": RegistryRemoved,
}
"""The events of removals, by table."""


@record(frozen=True, slots=True, kw_only=True)
class DatabaseRestored(OperatorEvent):
    """The database was replaced by a backup. `of` is the time of the backup (RFC 3339)."""

    kind = "database.restored"
    object_type = "none"

    of: str
