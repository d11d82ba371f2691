"""Addresses that webhooks may connect to."""

import ipaddress
from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_REFUSED = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "100.64.0.0/10",  # addresses that providers share (CGNAT)
            "192.0.0.0/24",  # IETF protocol assignments
            "192.88.99.0/24",  # relays of 6to4
            "198.18.0.0/15",  # benchmarks
            "240.0.0.0/4",  # reserved, and broadcast
            "::/96",  # ::, ::1, and IPv4-compatible addresses
            "64:ff9b:1::/48",  # NAT64 of the own network
            "100::/64",  # discarded
            "2001::/23",  # IETF protocol assignments, such as Teredo
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
            "fc00::/7",  # unique local
            "fe80::/10",  # link-local
            "fec0::/10",  # site-local
            "ff00::/8",  # multicast
        ),
    )
)
"""Networks that are refused, whatever the release of Python says of them."""


def is_allowed(address: str, networks: Sequence[Network]) -> bool:
    """Return whether a webhook may connect to an address.

    Public ones are allowed, and those in `networks`. An IPv4 address that an IPv6 address embeds
    (mapped, NAT64) counts as itself.
    """
    try:
        found: Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    ip = _embedded(found) or found
    if any(_contains(network, ip) or _contains(network, found) for network in networks):
        return True
    if any(_contains(network, ip) for network in _REFUSED):
        return False
    is_usual = ip.is_global and not ip.is_multicast and not ip.is_reserved
    return is_usual and not (ip.is_private or ip.is_loopback or ip.is_link_local)


def _contains(network: Network, ip: Address) -> bool:
    return network.version == ip.version and ip in network


def _embedded(ip: Address) -> ipaddress.IPv4Address | None:
    if isinstance(ip, ipaddress.IPv4Address):
        return None
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped
