"""What is kept of us on the disk and in labels: a value, beside the number of its format."""

from __future__ import annotations

import json
from typing import Generic, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


class Envelope(Generic[T]):
    """Values of one kind as JSON, `{"format": 1, "<key>": …}`; what newer agents wrote is refused.

    `number` is that of the format.
    """

    def __init__(self, key: str, kind: type[T], number: int) -> None:
        self._key = key
        self._number = number
        self._values = TypeAdapter(kind)

    def encode(self, value: T, *, indent: int | None = None) -> bytes:
        """Write one, on a single line or with `indent`."""
        content = {"format": self._number, self._key: self._values.dump_python(value, mode="json")}
        separators = (",", ":") if indent is None else None
        text = json.dumps(content, separators=separators, indent=indent, ensure_ascii=False)
        return text.encode() + b"\n"

    def decode(self, data: bytes) -> T:
        """Read one; ValueError when it is damaged or of an unknown format."""
        content = json.loads(data)
        if not isinstance(content, dict) or content.get("format") != self._number:
            raise ValueError(f"not a {self._key} of a format that this agent knows")
        return self._values.validate_python(content.get(self._key))
