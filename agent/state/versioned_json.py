"""What is kept of us on the disk and in labels: a value, beside the number of its format.

A number rises when what an older agent would make of the content is wrong; a field that it can do
without raises nothing: it is passed over there, and empty where nobody has written it.
"""

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

Step = Callable[[Any], Any]
"""Makes the content of the next format, as JSON has it, out of that of one format."""


class NewerFormatError(ValueError):
    """A newer agent has written it, so that this one cannot read it."""

    def __init__(self, what: str, number: int, known: int) -> None:
        super().__init__(f"{what} has format {number}, and this agent reads up to {known}")


class Envelope(Generic[T]):
    """Values of one kind as JSON, `{"format": 1, "<key>": …}`.

    What older agents wrote is brought up by `steps`, of which the first begins at format 1; they
    are all that a new format needs here.
    """

    def __init__(self, key: str, kind: type[T], *steps: Step) -> None:
        self._key = key
        self._steps = steps
        self._values = TypeAdapter(kind)
        self.number = 1 + len(steps)
        """That of the format which is written."""

    def encode(self, value: T, *, indent: int | None = None) -> bytes:
        """Write one, on a single line or with `indent`."""
        content = {"format": self.number, self._key: self._values.dump_python(value, mode="json")}
        separators = (",", ":") if indent is None else None
        text = json.dumps(content, separators=separators, indent=indent, ensure_ascii=False)
        return text.encode() + b"\n"

    def decode(self, data: bytes) -> T:
        """Read one.

        Raises:
            NewerFormatError: It is of a newer agent.
            ValueError: It is damaged.
        """
        content = json.loads(data)
        steps = self._steps[self._format_of(content) - 1 :]
        value = content.get(self._key)
        for step in steps:
            value = step(value)
        return self._values.validate_python(value)

    def format_of(self, data: bytes) -> int:
        """The number beside a value; raises as `decode`."""
        return self._format_of(json.loads(data))

    def _format_of(self, content: Any) -> int:
        number = content.get("format") if isinstance(content, dict) else None
        if type(number) is not int or number < 1:
            raise ValueError(f"it is not a valid {self._key}")
        if number > self.number:
            raise NewerFormatError(f"the {self._key}", number, self.number)
        return number
