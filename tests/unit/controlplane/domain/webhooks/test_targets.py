"""Webhooks connect to public addresses, and to networks that operators allow."""

import ipaddress
from collections.abc import Sequence

import pytest

from controlplane.domain.addresses import Network
from controlplane.domain.webhooks.targets import is_allowed

NONE: Sequence[Network] = ()


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.215.14",
        "2606:4700:4700::1111",
        "2a00:1450:4001:800::200e",
        "64:ff9b::101:101",  # NAT64 of a public address
    ],
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_allowed(address, NONE)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.254",
        "127.0.0.1",
        "127.8.8.8",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.0.9",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",  # IPv4-compatible
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",  # NAT64 of 127.0.0.1
        "64:ff9b::a00:1",
        "64:ff9b:1::101:101",  # NAT64 of the own network
        "100::1",
        "2001::1",  # Teredo
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
        "2001:10::1",
        "2002:7f00:1::1",  # 6to4 of 127.0.0.1
        "2002:101:101::1",  # 6to4 of a public address
        "3fff::1",
        "5f00::1",
        "4000::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
        "",
        "localhost",
        "1.1",
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    assert not is_allowed(address, NONE)


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "::ffff:10.1.2.3",
        "64:ff9b::a01:203",
        "fd00::1",
    ],
)
def test_networks_of_operators_are_allowed(address: str) -> None:
    networks = tuple(map(ipaddress.ip_network, ("10.1.0.0/16", "fd00::/64")))
    assert is_allowed(address, networks)


@pytest.mark.parametrize("address", ["10.2.0.1", "::ffff:10.2.0.1", "fd00:0:0:1::1", "127.0.0.1"])
def test_nothing_beside_the_networks_of_operators_is_allowed(address: str) -> None:
    networks = tuple(map(ipaddress.ip_network, ("10.1.0.0/16", "fd00::/64")))
    assert not is_allowed(address, networks)
