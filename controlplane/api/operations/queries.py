"""Parsing of queries: known parameters are strict and come once, others are ignored."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from aiohttp import web
from multidict import MultiMapping
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from controlplane.api.operations.bodies import description_of, shortened
from controlplane.domain.errors import InvalidRequestError, Violation

MAX_KEYS = 32
_TRUE = frozenset({"true", "1"})
_FALSE = frozenset({"false", "0"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}\Z", re.ASCII)
_Query = TypeVar("_Query", bound="Query")


def _flag(text: object) -> bool:
    lower = str(text).lower()
    if lower not in _TRUE | _FALSE:
        raise ValueError("must be true or false")
    return lower in _TRUE


def _integer(text: object) -> int:
    if not _INTEGER.match(str(text)):
        raise ValueError("must be an integer")
    return int(str(text))


Flag = Annotated[bool, BeforeValidator(_flag)]  # `true` or `false` in any case, `1` or `0`
Integer = Annotated[int, BeforeValidator(_integer)]  # An integer of any size

UpTo1000 = Annotated[int, Field(ge=1, le=1000), BeforeValidator(_integer)]
"""In this order pydantic's schema includes the bounds."""

PageBefore = Annotated[int, Field(ge=0, le=2**63 - 1), BeforeValidator(_integer)]
"""`before` of the previous page."""

LogOffset = Annotated[int, Field(ge=0, le=2**60), BeforeValidator(_integer)]
HostPort = Annotated[int, Field(ge=1, le=65535), BeforeValidator(_integer)]  # A host port number

Record = Annotated[
    dict[str, str],
    Field(max_length=MAX_KEYS, json_schema_extra={"propertyNames": {"pattern": r"^[^\[\]]+$"}}),
]
"""Text by key, from `name[key]=value`."""


class Query(BaseModel):
    """The query of a call.

    `deep`: fields read from `name[key]=value`, one level deep. `several`: lists, whose values are
    repeated or separated by commas. `refused`: unknown parameters that are errors, with the
    reason.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    deep: ClassVar[frozenset[str]] = frozenset()
    several: ClassVar[frozenset[str]] = frozenset()
    refused: ClassVar[Mapping[str, str]] = {}


def read_query(request: web.Request, model: type[_Query]) -> _Query:
    """Parse and validate a query.

    Raises:
        InvalidRequestError: It is invalid; has all violations.
    """
    found: dict[str, Any] = {}
    violations = [
        Violation(key, why)
        for name, why in model.refused.items()
        for key in _keys(request.query, name)
    ]
    for name in model.model_fields:
        if name in model.several:
            _read_all(request.query, name, found)
            continue
        read = _read_deep if name in model.deep else _read_one
        violations.extend(read(request.query, name, found))
    try:
        query = model.model_validate(found)
    except ValidationError as error:
        violations.extend(_violations_of(error))
    if violations:
        raise InvalidRequestError(tuple(violations))
    return query


def _keys(query: MultiMapping[str], name: str) -> list[str]:
    """Return `name` itself and every `name[…]` of a query, each once."""
    return [key for key in dict.fromkeys(query) if key == name or key.startswith(f"{name}[")]


def _read_one(query: MultiMapping[str], name: str, found: dict[str, Any]) -> Iterator[Violation]:
    values = query.getall(name, [])
    if len(values) > 1:
        yield Violation(name, "is repeated")
    if values:
        found[name] = values[0]


def _read_all(query: MultiMapping[str], name: str, found: dict[str, Any]) -> None:
    values = query.getall(name, [])
    if values:
        found[name] = ",".join(values).split(",")


def _read_deep(query: MultiMapping[str], name: str, found: dict[str, Any]) -> Iterator[Violation]:
    keys = _keys(query, name)
    if len(keys) > MAX_KEYS:
        yield Violation(name, f"has more than {MAX_KEYS} keys")
        return
    record: dict[str, str] = {}
    for key in keys:
        inner = key[len(name) + 1 : -1]
        values = query.getall(key)
        if not key.endswith("]") or not inner or "[" in inner or "]" in inner:
            yield Violation(key, f"must have the form {name}[key]=value")
            continue
        if len(values) > 1:
            yield Violation(key, "is repeated")
        record[inner] = values[0]
    if record:
        found[name] = record


def _violations_of(error: ValidationError) -> Iterator[Violation]:
    """Translate pydantic's errors: `("playerCount", "lt")` is `playerCount[lt]`."""
    for details in error.errors(include_url=False, include_input=False, include_context=False):
        name, *inner = map(str, details["loc"])
        field = name + "".join(f"[{key}]" for key in inner if key != "[key]")
        yield Violation(shortened(field), description_of(details["msg"]))
