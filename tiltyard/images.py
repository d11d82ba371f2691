"""Addresses of registries, `host[:port]`, and pulls of images, as both programs see them. Pure."""

import ipaddress
import re
from dataclasses import dataclass

LONGEST_HOST = 253  # Characters of a DNS name (RFC 1035)

LONGEST_ADDRESS = LONGEST_HOST + len(":65535")
LONGEST_REPOSITORY = 255  # Characters of a repository's name at a registry

_LAST_PORT = 65535
_HUB = "registry-1.docker.io"
_FAMILIAR = frozenset({"docker.io", "index.docker.io"})
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
PATTERN = rf"{_LABEL}(?:\.{_LABEL})*(?::[1-9][0-9]{{0,4}})?"
"""A DNS name or an IPv4 address, and a port: the part of an image's name before the `/`."""

_ADDRESS = re.compile(PATTERN, re.ASCII)
_NUMBER = re.compile("[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)


def why_refused(address: str) -> str | None:
    """The reason and a hint why a registry address is refused; None if it is accepted.

    Engines read a name without '.' and port, except `localhost`, as a user of Docker Hub, and
    list images of `docker.io` without that host, so they would never be found. A name that ends
    in a number is an IPv4 address in a legacy notation (WHATWG URL standard).
    """
    host, _, port = address.partition(":")
    if not _ADDRESS.fullmatch(address) or len(host) > LONGEST_HOST or int(port or 1) > _LAST_PORT:
        return "it is not host[:port], without scheme, user and path"
    if not port and "." not in host and host != "localhost":
        return f"it would be a user of Docker Hub: write {host}:443, or its port"
    if _NUMBER.fullmatch(host.rpartition(".")[2]) and not _is_ipv4(host):
        return "it is a number and not an IPv4 address: write four decimal numbers"
    if is_familiar(address):
        return f"the engine lists images of Docker Hub without it: write {_HUB}"
    return None


def is_familiar(address: str) -> bool:
    """Return whether engines omit this address from the image names that they list."""
    return address.lower() in _FAMILIAR


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PullProgress:
    """Progress of a pull. `received_bytes` are compressed; `waiting`: queued, not begun.

    `downloading` counts the layers that the registry is sending now.
    """

    layers: int = 0
    layers_done: int = 0
    received_bytes: int = 0
    waiting: bool = False
    downloading: int = 0
