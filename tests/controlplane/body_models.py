"""The bodies of the API: their models by the route table, and their places by their schemas."""

from __future__ import annotations

import copy
import json
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

from aiohttp import web

from controlplane.api.operations.bodies import Body, read_body
from controlplane.api.routes import ROUTES
from controlplane.domain.errors import InvalidRequestError
from tests.fuzz.templates import TEMPLATES

_T = TypeVar("_T")
Path = tuple[str | int, ...]

EXAMPLES: dict[type[Body], Any] = {
    route.handler.body: TEMPLATES[route.method, route.path].body
    for route in ROUTES
    if route.handler.body is not None and (route.method, route.path) in TEMPLATES
}
"""A valid body of every model, in which every property stands. That no route lacks its template
is tested with the fuzzer."""
MODELS = list(EXAMPLES)


class Sent(dict[Any, Any]):
    """What `read_body` needs of a request."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.content_length = len(body)
        self.headers: dict[str, str] = {}
        self._body = body

    def clone(self, **_: Any) -> Sent:
        return self

    async def read(self) -> bytes:
        return self._body


@dataclass(frozen=True)
class Refused:
    """The paths of the violations, in order."""

    fields: tuple[str, ...]


def _finish(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run what never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("_T", done.value)
    raise AssertionError("it waits")


def read_sent(model: type[Body], body: bytes) -> Body:
    """Read a body as a handler does; raises InvalidRequestError."""
    return _finish(read_body(cast("web.Request", Sent(body)), model))


def take(model: type[Body], body: bytes) -> Body | Refused:
    """Read a body as a handler does."""
    try:
        return read_sent(model, body)
    except InvalidRequestError as error:
        violations = error.violations
    assert violations
    assert all(v.field and v.description for v in violations)
    return Refused(tuple(v.field for v in violations))


def give(model: type[Body], value: Any) -> Body | Refused:
    return take(model, json.dumps(value).encode())


@cache
def resolved(model: type[Body]) -> dict[str, Any]:
    """The model's schema without references."""
    whole = model.model_json_schema()

    def follow(part: Any) -> Any:
        if isinstance(part, list):
            return [follow(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return follow(whole["$defs"][part["$ref"].rpartition("/")[2]])
        return {key: follow(item) for key, item in part.items()}

    return cast("dict[str, Any]", follow(whole))


@dataclass(frozen=True)
class Place:
    """A value of a body, with the schema of what may stand there."""

    path: Path
    schema: dict[str, Any]
    required: bool

    @property
    def field(self) -> str:
        """The path as violations write it."""
        return field_of(self.path)


def field_of(path: Path) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def places(schema: dict[str, Any], value: Any, path: Path = ()) -> Iterator[Place]:
    """Give every value in a body, with its schema."""
    schema = not_null(schema)
    if isinstance(value, dict):
        required = schema.get("required", ())
        free = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
        for name, item in value.items():
            closed = "properties" in schema
            inner = schema["properties"][name] if closed else next(f for f in free if f)
            yield Place((*path, name), inner, closed and name in required)
            yield from places(inner, item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield Place((*path, number), schema["items"], required=True)
            yield from places(schema["items"], item, (*path, number))


def objects(value: Any, path: Path = ()) -> Iterator[Path]:
    """Give every object in a body."""
    if isinstance(value, dict):
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        if isinstance(item, dict | list):
            yield from objects(item, (*path, key))


def not_null(schema: dict[str, Any]) -> dict[str, Any]:
    options = [part for part in schema.get("anyOf", ()) if part.get("type") != "null"]
    return cast("dict[str, Any]", options[0]) if options else schema


def at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value


def put(body: Any, path: Path, value: Any) -> Any:
    """Give a copy of a body with another value at a path."""
    if not path:
        return value
    changed = copy.deepcopy(body)
    at(changed, path[:-1])[path[-1]] = value
    return changed


def without(body: Any, path: Path) -> Any:
    changed = copy.deepcopy(body)
    del at(changed, path[:-1])[path[-1]]
    return changed


_OTHER_TYPES: dict[str, tuple[Any, ...]] = {
    "string": (1, True, [], {}, 0.5),
    "integer": ("1", 1.5, True, [], {}),
    "number": ("1", True, [], {}),
    "boolean": ("true", 0, 1, [], {}),
    "array": ("x", 1, {}, True),
    "object": ("x", 1, [], True),
}


def breakers(place: Place, good: Any) -> Iterator[Any]:
    """Give values that the schema refuses at a place."""
    schema = not_null(place.schema)
    yield from _OTHER_TYPES[schema["type"]]
    if place.required or "anyOf" not in place.schema:
        yield None
    if "enum" in schema:
        yield from ("", "no such", str(schema["enum"][0]).swapcase())
    if "minLength" in schema:
        yield "x" * (schema["minLength"] - 1)
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    if "minimum" in schema:
        yield from (schema["minimum"] - 1, -(2**63))
    if "maximum" in schema:
        yield from (schema["maximum"] + 1, 2**63 - 1)
    if "minItems" in schema:
        yield good[: schema["minItems"] - 1]
    if "maxItems" in schema:
        yield good[:1] * (schema["maxItems"] + 1)


@cache
def holder(model: type[Body], path: Path) -> dict[str, Any]:
    """The schema of the object that a property is of."""
    for place in places(resolved(model), EXAMPLES[model]):
        if place.path == path[:-1]:
            return not_null(place.schema)
    return resolved(model)


def is_closed(model: type[Body], path: Path) -> bool:
    return not path or "properties" in holder(model, (*path, ""))
