"""The bodies of each model that are the most expensive to read or to refuse."""

import json
from collections.abc import Iterator
from typing import Any

from controlplane.api.operations.bodies import MAX_BODY, Body
from tests.controlplane.body_models import EXAMPLES


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


def _values(good: Any) -> Iterator[Any]:
    """Yield the worst values of a property: as many items as a body may hold, and more."""
    for count in (1000, 4900):
        if isinstance(good, dict):
            yield {str(number): 1 for number in range(count)}
            yield {f"={number}": "" for number in range(count)}
        elif isinstance(good, list):
            yield [1] * count
            yield [""] * count
            yield [{str(number): 1 for number in range(90)}] * (count // 90)
        elif isinstance(good, str):
            yield "\x7f" * (count * 200)


def worst_bodies(model: type[Body]) -> Iterator[bytes]:
    """Yield bodies that the model refuses or just accepts."""
    bodies = [*WHOLE.values(), json.dumps(dict.fromkeys(map(str, range(99)), 1)).encode()]
    bodies += (
        json.dumps(EXAMPLES[model] | {name: value}, ensure_ascii=False).encode()
        for name, good in EXAMPLES[model].items()
        for value in _values(good)
    )
    yield from (body for body in bodies if len(body) <= model.max_bytes)
