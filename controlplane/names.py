"""What operators may call things, and how a registry is addressed. Pure."""

import re

NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
NAME_RULE = (
    "must be 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-', and begin with a letter or a digit"
)
"""So that no name is `.` or `..`, which clients take out of a path."""

ADDRESS_RULE = "must be host[:port]"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
ADDRESS_PATTERN = rf"{_LABEL}(?:\.{_LABEL})*(?::[1-9][0-9]{{0,4}})?"
"""A DNS name or an IPv4 address, and a port: what stands before the `/` of an image's name."""

MAX_HOST = 253
MAX_PORT = 65535
_NAME = re.compile(rf"{NAME_PATTERN}\Z", re.ASCII)
_ADDRESS = re.compile(rf"{ADDRESS_PATTERN}\Z", re.ASCII)


def is_name(text: str) -> bool:
    """Tell whether an account, region, node pool, registry or agent may be called so."""
    return _NAME.match(text) is not None


def is_registry_address(text: str) -> bool:
    """Tell whether this is `host[:port]`: no scheme, no user, no path."""
    host, _, port = text.partition(":")
    return (
        _ADDRESS.match(text) is not None
        and len(host) <= MAX_HOST
        and int(port or MAX_PORT) <= MAX_PORT
    )
