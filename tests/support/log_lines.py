"""Strict parsers of log lines, in the forms that log shippers read."""

import json
import re
from typing import Any

_FIELD = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=\\]+)(?: |\Z)')


def logfmt(line: str) -> dict[str, str]:
    """Return the fields of a line; raise ValueError if it is malformed."""
    found: dict[str, str] = {}
    at = 0
    while at < len(line):
        match = _FIELD.match(line, at)
        if match is None:
            raise ValueError(f"no field at {at}: {line!r}")
        name, value = match.groups()
        if name in found:
            raise ValueError(f"{name} stands twice: {line!r}")
        found[name] = json.loads(value) if value.startswith('"') else value
        at = match.end()
    return found


def read(line: str, form: str) -> dict[str, Any]:
    """Return the fields of a line in this format."""
    if form == "logfmt":
        return logfmt(line)
    found = json.loads(line, object_pairs_hook=_once)
    assert isinstance(found, dict)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"a field stands twice: {pairs}")
    return dict(pairs)
