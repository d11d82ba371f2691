"""Ids that may name files, folders and containers: UUIDs in lower case, and nothing else. Pure."""

import re

from agent.domain.errors import InvalidArgumentError

_FORM = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def checked_id(text: str, field: str = "internal_id") -> str:
    """Validate an id; raises InvalidArgumentError, which names the field."""
    if not _FORM.fullmatch(text):
        raise InvalidArgumentError(field, "it is not a lower-case UUID")
    return text
