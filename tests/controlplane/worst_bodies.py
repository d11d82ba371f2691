"""Bodies that cost as much to read, or to refuse, as any body may, for each model."""

import json
from collections.abc import Iterator
from typing import Any

from controlplane.api.operations.bodies import MAX_BODY, Body
from tests.controlplane.body_models import EXAMPLES, at, not_null, places, put, resolved


def _full(start: bytes, item: bytes, end: bytes) -> bytes:
    """Repeat an item until the body is as large as it may be."""
    return start + item * ((MAX_BODY - len(start) - len(end)) // len(item)) + end


WHOLE = {
    "integers": _full(b"[", b"1,", b"1]"),
    "floats": _full(b"[", b"1.5,", b"1]"),
    "strings": _full(b"[", b'"",', b'""]'),
    "lists": _full(b"[", b"[],", b"1]"),
    "objects": _full(b"[", b"{},", b"1]"),
    "depth": _full(b"", b"[", b""),
    "quotes": _full(b"", b'\\"', b""),
    "spaces": _full(b"", b" ", b"{}"),
    "unknown": b"{" + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}",
}


def _values(schema: dict[str, Any], good: Any) -> Iterator[Any]:
    """Give the worst values at a place, by as many items as a body may hold and by more."""
    for count in (1000, 4900):
        match not_null(schema)["type"]:
            case "object":
                yield {str(number): 1 for number in range(count)}
                yield {f"={number}": "" for number in range(count)}
            case "array":
                yield [1] * count
                yield [""] * count
                yield [{str(number): 1 for number in range(90)}] * (count // 90)
            case "string":
                yield "\x7f" * (count * 200)


def worst_bodies(model: type[Body]) -> Iterator[bytes]:
    """Give bodies that the model refuses, or some of them just accepts."""
    bodies = [*WHOLE.values(), *_filled(model)]
    yield from (body for body in bodies if len(body) <= model.max_bytes)


def _filled(model: type[Body]) -> Iterator[bytes]:
    example = EXAMPLES[model]
    yield json.dumps(dict.fromkeys(map(str, range(99)), 1)).encode()
    for place in places(resolved(model), example):
        for value in _values(place.schema, at(example, place.path)):
            yield json.dumps(put(example, place.path, value), ensure_ascii=False).encode()
