"""Field types shared by several bodies."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from controlplane.domain.durations import parse_duration
from tiltyard.contract import Capability
from tiltyard.runtime.settings import checked

MAX_JSON_BYTES = 64 * 1024  # Of labels, of variables and of arguments, each as JSON
MAX_ENTRIES = 1000  # Of labels, of variables and of arguments

_LONGEST = 12  # Bytes of a character as JSON
_BESIDE = 4  # Bytes beside a text: its quotes, a comma or colon, and a space

_RESERVED = re.compile(r"TILTYARD_(?:SESSION_ID|CONTAINER|HOST|IP|PORT_(?:TCP|UDP)_[0-9]+)\Z")
"""Names injected on every host. An agent refuses others that its host injects."""


def _environment_name(name: str) -> None:
    if not name or "=" in name:
        raise ValueError("a name must not be empty or contain =")
    if _RESERVED.match(name):
        raise ValueError("this name is reserved")


def bounded_as_json(most: int) -> AfterValidator:
    """Limit the bytes of a value as JSON, where a non-ASCII character takes 6 or 12."""

    def check(value: Mapping[str, str] | Sequence[str]) -> None:
        texts = [*value, *value.values()] if isinstance(value, Mapping) else value
        if _LONGEST * sum(map(len, texts)) + _BESIDE * len(texts) <= most:
            return  # without encoding it
        if len(json.dumps(value)) > most:
            raise ValueError(f"must be at most {most} bytes as JSON")

    return checked(check)


def json_pattern(pattern: re.Pattern[str]) -> str:
    """Convert a pattern for `re.match` to JSON Schema, which searches."""
    matched = pattern.pattern.removesuffix(r"\Z")
    return f"^{matched}$"


NO_CONTROLS = r"^[^\u0000-\u001f\u007f-\u009f]*$"  # Text without control characters

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(min_length=1, max_length=256)]  # Name of an existing object

PortNumber = Annotated[int, Field(ge=1, le=65535)]
SessionId = Annotated[str, Field(min_length=1, max_length=256, pattern=NO_CONTROLS)]
ExternalId = Annotated[str, Field(max_length=256, pattern=NO_CONTROLS)]
Duration = Annotated[
    str,
    checked(parse_duration),
    Field(json_schema_extra={"pattern": "^([0-9]{1,6}h([0-9]{1,6}m)?|[0-9]{1,6}m)$"}),
]
"""`<hours>h<minutes>m`, at most 8760h; less than a minute counts as one minute."""
_EnvironmentName = Annotated[
    str,
    checked(_environment_name),
    Field(
        json_schema_extra={
            "pattern": r"^[^=\u0000]+$",
            "not": {"pattern": json_pattern(_RESERVED)},
        }
    ),
]

Labels = Annotated[dict[str, str], Field(max_length=MAX_ENTRIES), bounded_as_json(MAX_JSON_BYTES)]
"""Labels that a caller filters sessions by."""

Environment = Annotated[
    dict[_EnvironmentName, Text], Field(max_length=MAX_ENTRIES), bounded_as_json(MAX_JSON_BYTES)
]
"""Environment variables set by a caller."""

Capabilities = Annotated[
    list[Annotated[Capability, Field(strict=False)]],
    Field(max_length=len(Capability)),
    AfterValidator(lambda asked: tuple(sorted(set(asked)))),
]
"""Capabilities of Linux, sorted and each once."""

Arguments = Annotated[list[Text], Field(max_length=MAX_ENTRIES), bounded_as_json(MAX_JSON_BYTES)]
"""Arguments of an image's entrypoint."""
