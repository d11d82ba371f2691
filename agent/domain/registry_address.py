"""Validation of registry addresses, `host[:port]`. Pure."""

import ipaddress
import re

LONGEST_HOST, LONGEST_PORT = 253, len(":65535")
"""Characters of a DNS name (RFC 1035), and of a port with its colon."""

_LAST_PORT = 65535
_HUB = "registry-1.docker.io"
_HUB_IN_SHORT = frozenset({"docker.io", "index.docker.io"})
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"({_LABEL}(?:\.{_LABEL})*)(?::([1-9][0-9]{{0,4}}))?", re.ASCII)
_NUMBER = re.compile("[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)


def why_refused(address: str) -> str | None:
    """The reason and a hint why a registry address is refused; None if it is accepted.

    Engines read a name without '.' and port, except `localhost`, as a user of Docker Hub, and
    list images of `docker.io` without that host, so they would never be found. A name that ends
    in a number is an IPv4 address in a legacy notation (WHATWG URL standard).
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or len(found[1]) > LONGEST_HOST or int(found[2] or 1) > _LAST_PORT:
        return "it is not host[:port], without scheme, user and path"
    host, port = found[1], found[2]
    if port is None and "." not in host and host != "localhost":
        return f"it would be a user of Docker Hub: write {host}:443, or its port"
    if _NUMBER.fullmatch(host.rpartition(".")[2]) and not _is_ipv4(host):
        return "it is a number and not an IPv4 address: write four decimal numbers"
    if address.lower() in _HUB_IN_SHORT:
        return f"the engine lists images of Docker Hub without it: write {_HUB}"
    return None


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True
