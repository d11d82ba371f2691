"""Rules for names, and for addresses and credentials of registries. Pure."""

import ipaddress
import re
import unicodedata

MAX_NAME = 128
NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
NAME_RULE = (
    "must be 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-', and begin with a letter or a digit"
)
"""Excludes `.` and `..`, which clients remove from a path."""

ADDRESS_RULE = "must be host[:port], with the port unless there is a '.' in the host"
FAMILIAR_RULE = (
    "must be registry-1.docker.io, with the aliases docker.io and index.docker.io: engines list"
    " images of those under other names"
)
_FAMILIAR = frozenset({"docker.io", "index.docker.io"})
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
ADDRESS_PATTERN = rf"{_LABEL}(?:\.{_LABEL})*(?::[1-9][0-9]{{0,4}})?"
"""A DNS name or an IPv4 address, and a port: the part of an image's name before the `/`."""

MAX_HOST = 253
MAX_PORT = 65535
MAX_ADDRESS = MAX_HOST + len(":65535")

MAX_USERNAME, MAX_PASSWORD = 256, 4096
"""Characters; cloud tokens used as passwords have some 3,000."""

MAX_ALIASES, MAX_AUTH_HOSTS = 16, 16
USERNAME_RULE = f"must be 1 to {MAX_USERNAME} characters, none of them ':' or a control character"
"""A colon ends the name in Basic authentication (RFC 7617)."""

PASSWORD_RULE = f"must be 1 to {MAX_PASSWORD} characters, none of them a control character"
_NAME = re.compile(rf"{NAME_PATTERN}\Z", re.ASCII)
_ADDRESS = re.compile(rf"{ADDRESS_PATTERN}\Z", re.ASCII)
_NUMBER = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)\Z")


def is_name(text: str) -> bool:
    """Return whether this can name an account, region, node pool, registry or agent."""
    return _NAME.match(text) is not None


def is_registry_address(text: str) -> bool:
    """Return whether this is `host[:port]`: no scheme, no user, no path.

    A name without a dot or port would be a repository at Docker Hub; one that ends in a number is
    an IPv4 address in an old notation (WHATWG URL standard, "ends in a number").
    """
    host, _, port = text.partition(":")
    return (
        _ADDRESS.match(text) is not None
        and len(host) <= MAX_HOST
        and int(port or MAX_PORT) <= MAX_PORT
        and (bool(port) or "." in host or host == "localhost")
        and (_NUMBER.match(host.rpartition(".")[2]) is None or _is_ipv4(host))
    )


def is_familiar(address: str) -> bool:
    """Return whether engines omit this address from the image names that they list.

    It can be an alias of a registry, but not the address that hosts are given.
    """
    return address.lower() in _FAMILIAR


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def is_username(text: str) -> bool:
    """Return whether this is a valid user name of a registry."""
    return 1 <= len(text) <= MAX_USERNAME and ":" not in text and not has_controls(text)


def is_password(text: str) -> bool:
    """Return whether this is a valid password of a registry."""
    return 1 <= len(text) <= MAX_PASSWORD and not has_controls(text)


def has_controls(text: str) -> bool:
    """Return whether a text has control characters."""
    return any(unicodedata.category(character) == "Cc" for character in text)
