"""A second reader of JSON, as strict as the API's: what it refuses the API has to refuse."""

import json
import math
import re
from typing import Any

MAX_DEPTH = 32
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class NotJsonError(ValueError):
    """The bytes are no JSON that two parsers would read the same way."""


def read(body: bytes) -> Any:
    """Read a body as strictly as the API does, or raise NotJsonError."""
    try:
        value = json.loads(body.decode(), object_pairs_hook=_pairs, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotJsonError from error
    _walk(value, 0)
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise NotJsonError
    return dict(pairs)


def _refuse(_: str) -> None:
    raise NotJsonError


def _walk(value: Any, depth: int) -> None:
    match value:
        case str():
            bad = bool(_UNSTORABLE.search(value))
        case int():
            bad = not -(2**63) <= value < 2**63
        case float():
            bad = not math.isfinite(value)
        case dict() | list():
            bad = depth == MAX_DEPTH
        case _:
            bad = False
    if bad:
        raise NotJsonError
    children = [*value, *value.values()] if isinstance(value, dict) else value
    for child in children if isinstance(children, list) else ():
        _walk(child, depth + 1)
