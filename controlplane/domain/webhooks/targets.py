"""Addresses that webhooks may connect to."""

import ipaddress
from collections.abc import Sequence

from controlplane.domain.addresses import Address, Network, is_public, parse_address, translated

_REFUSED = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "100.64.0.0/10",  # addresses that providers share (CGNAT)
            "192.88.99.0/24",  # relays of 6to4
            "198.18.0.0/15",  # benchmarks
            "240.0.0.0/4",  # reserved, and broadcast
            "100::/64",  # discarded
            "2001::/23",  # IETF protocol assignments, such as Teredo
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
            "fc00::/7",  # unique local
            "fe80::/10",  # link-local
            "ff00::/8",  # multicast
        ),
    )
)
"""Networks that are refused besides, whatever the release of Python says of them."""


def is_allowed(address: str, networks: Sequence[Network]) -> bool:
    """Return whether a webhook may connect to an address.

    Public ones are allowed, and those in `networks`. An IPv4 address that an IPv6 address embeds
    (mapped, NAT64) counts as itself.
    """
    try:
        found = parse_address(address)
    except ValueError:
        return False
    ip = translated(found) or found
    if any(_contains(network, ip) or _contains(network, found) for network in networks):
        return True
    if not is_public(address) or any(_contains(network, ip) for network in _REFUSED):
        return False
    return not (ip.is_reserved or ip.is_private or ip.is_loopback or ip.is_link_local)


def _contains(network: Network, ip: Address) -> bool:
    return network.version == ip.version and ip in network
