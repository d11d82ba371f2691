"""Rules for names, and for credentials of registries. Pure."""

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

MAX_USERNAME = 256
MAX_PASSWORD = 4096
"""Characters; cloud tokens used as passwords have some 3,000."""

MAX_ALIASES = 16
MAX_AUTH_HOSTS = 16
USERNAME_RULE = f"must be 1 to {MAX_USERNAME} characters, none of them ':' or a control character"
"""A colon ends the name in Basic authentication (RFC 7617)."""

PASSWORD_RULE = f"must be 1 to {MAX_PASSWORD} characters, none of them a control character"
_NAME = re.compile(rf"{NAME_PATTERN}\Z", re.ASCII)


def is_name(text: str) -> bool:
    """Return whether this can name an account, region, node pool, registry or agent."""
    return _NAME.match(text) is not None


def is_username(text: str) -> bool:
    """Return whether this is a valid user name of a registry."""
    return 1 <= len(text) <= MAX_USERNAME and ":" not in text and not has_controls(text)


def is_password(text: str) -> bool:
    """Return whether this is a valid password of a registry."""
    return 1 <= len(text) <= MAX_PASSWORD and not has_controls(text)


def has_controls(text: str) -> bool:
    """Return whether a text has control characters."""
    return any(unicodedata.category(character) == "Cc" for character in text)
