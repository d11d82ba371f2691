"""What bodies and queries may be accepted, told a second time and apart from the product.

A shape says yes to whatever may be valid. It may be wider than the product's rule, and then the
product decides; where it says no, an answer of 2xx is a bug.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

Shape = Callable[[Any], bool]

MAX_DEPTH = 32
MAX_FILTERS = 32
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_DURATION = re.compile(r"(?=.)([0-9]{1,6}h)?([0-9]{1,6}m)?\Z", re.ASCII)


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


def text(least: int = 1, most: int = 2**32, form: str = "") -> Shape:
    """A string of `least` to `most` characters; all of it has the form, where one is given."""
    return lambda value: (
        isinstance(value, str)
        and least <= len(value) <= most
        and bool(not form or re.fullmatch(form, value, re.ASCII | re.DOTALL))
    )


def plain(most: int) -> Shape:
    """A string without control characters."""
    sized = text(1, most)
    return lambda value: sized(value) and not any(unicodedata.category(c) == "Cc" for c in value)


def duration(value: Any) -> bool:
    """Accept hours and minutes."""
    return isinstance(value, str) and bool(_DURATION.match(value))


def number(least: float, most: float) -> Shape:
    """A number that is no boolean."""
    return lambda value: type(value) in {int, float} and least <= value <= most


def integer(least: int, most: int) -> Shape:
    """A whole number, however it is written, that is no boolean."""
    sized = number(least, most)
    return lambda value: sized(value) and value == int(value)


def boolean(value: Any) -> bool:
    """Accept true and false."""
    return isinstance(value, bool)


def one_of(*words: str) -> Shape:
    """One of these strings."""
    return lambda value: isinstance(value, str) and value in words


def each(shape: Shape, least: int = 0, most: int = 2**32) -> Shape:
    """A list."""
    return lambda value: (
        isinstance(value, list) and least <= len(value) <= most and all(map(shape, value))
    )


def record(shape: Shape, key: Shape | None = None) -> Shape:
    """An object with any properties, whose names have a shape too, where one is given."""
    return lambda value: (
        isinstance(value, dict)
        and (key is None or all(map(key, value)))
        and all(map(shape, value.values()))
    )


def closed(required: Mapping[str, Shape], optional: Mapping[str, Shape]) -> Shape:
    """An object with these properties and no other; null for an optional one is as absent."""

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or not required.keys() <= value.keys():
            return False
        if not value.keys() <= required.keys() | optional.keys():
            return False
        return all(
            required[name](item) if name in required else item is None or optional[name](item)
            for name, item in value.items()
        )

    return fits


def like(example: Any) -> Shape:
    """What has the types of an example: the shape of a template that gives no other."""
    match example:
        case bool():
            return boolean
        case int() | float():
            return number(-math.inf, math.inf)
        case str():
            return text(0)
        case dict():
            return closed({}, {name: like(item) for name, item in example.items()})
        case list():
            shapes = [like(item) for item in example]
            return each(lambda item: not shapes or any(shape(item) for shape in shapes))
        case _:
            return lambda _: True


@dataclass(frozen=True)
class QueryShape:
    """The parameters that a route knows; others are ignored."""

    required: Mapping[str, Shape]
    optional: Mapping[str, Shape]
    records: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def fits(self, query: str) -> bool:
        """Return whether a query may be accepted."""
        pairs = parse_qsl(query, keep_blank_values=True)
        names = [name for name, _ in pairs]
        known = {**self.required, **self.optional}
        if any(names.count(name) != 1 for name in self.required):
            return False
        if any(names.count(name) > 1 for name in known):
            return False
        if any(not known[name](value) for name, value in pairs if name in known):
            return False
        return all(self._deep(name, names) for name in names if name not in known)

    def _deep(self, name: str, names: list[str]) -> bool:
        """Return whether `name` is unknown, or a good entry of a record."""
        begin, bracket, rest = name.partition("[")
        if begin in self.refused:
            return False
        deep = {known.partition("[")[0] for known in self.optional if "[" in known}
        if begin in deep:
            return False
        if begin not in self.records:
            return True
        inside = rest.removesuffix("]")
        if not bracket or not rest.endswith("]") or not inside or set(inside) & set("[]"):
            return False
        many = {other for other in names if other.startswith(f"{begin}[")}
        return names.count(name) == 1 and len(many) <= MAX_FILTERS


def flag(value: str) -> bool:
    """Accept a boolean of a query."""
    return value.lower() in {"true", "false", "1", "0"}


def digits(value: str) -> bool:
    """Accept an integer of a query."""
    return bool(re.fullmatch(r"[+-]?[0-9]+", value, re.ASCII))


def port(value: str) -> bool:
    """Accept the number of a port in a query."""
    return digits(value) and len(value) < 99 and 1 <= int(value) <= 65535


def unix_path(value: str) -> bool:
    """Accept an absolute path."""
    sized = len(value.encode(errors="replace")) <= 4096
    return value.startswith("/") and "\0" not in value and sized
