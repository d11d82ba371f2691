"""IP addresses on the public internet, as those may be that accounts name."""

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # IETF protocol assignments, such as DS-Lite
            "::/96",  # IPv4-compatible IPv6 (deprecated), and ::1
            "64:ff9b:1::/48",  # local-use NAT64
            "fec0::/10",  # site-local (deprecated)
        ),
    )
)
"""Non-public networks that `ipaddress` reports as global in some Python releases."""

_OF_PLATFORMS = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # Azure: the platform of a virtual machine (WireServer, DNS)
            "161.26.0.0/16",  # IBM Cloud: infrastructure services, such as DNS and mirrors
            "166.8.0.0/14",  # IBM Cloud: private endpoints of its services
        ),
    )
)
"""Networks with public numbers that only machines of a cloud reach.

They are from the documentation of Azure ("What is IP address 168.63.129.16") and of IBM Cloud
("Service endpoints" of VPC). The metadata of other clouds is link-local (169.254.0.0/16), unique
local (fd00:ec2::254 of AWS, fd20:ce::254 of Google), shared (100.100.100.200 of Alibaba) or among
the IETF assignments (192.0.0.192 of Oracle), which are not public anyway.
"""


def parse_address(text: str) -> Address:
    """Parse an address, without its zone. Raises ValueError."""
    return ipaddress.ip_address(text.partition("%")[0])


def translated(ip: Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a mapped or NAT64 address leads to; None of any other."""
    if isinstance(ip, ipaddress.IPv4Address):
        return None
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped


def is_public(address: str) -> bool:
    """Return whether an address, or the IPv4 address it embeds, is on the public internet."""
    ip = parse_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        ip = translated(ip) or ip.sixtofour or ip
    if any(ip in network for network in (*_NOT_PUBLIC, *_OF_PLATFORMS)):
        return False
    return ip.is_global and not ip.is_multicast
