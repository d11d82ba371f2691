"""Types of fields that several bodies have in common."""

import json
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from controlplane.durations import parse_duration
from controlplane.names import has_controls

MAX_LABELS_BYTES = 64 * 1024
"""Of a session's labels as JSON: every list shows them."""

_RESERVED = re.compile(r"TILTYARD_(?:SESSION_ID|CONTAINER|HOST|IP|PORT_(?:TCP|UDP)_[0-9]+)\Z")
"""The names that every host injects. A host may inject more; its agent refuses those."""


def _no_control_characters(text: str) -> str:
    if has_controls(text):
        raise ValueError("must not hold control characters")
    return text


def _environment_name(name: str) -> str:
    if not name or "=" in name:
        raise ValueError("a name must not be empty or hold =")
    if _RESERVED.match(name):
        raise ValueError("this name is reserved")
    return name


def _not_too_large(labels: dict[str, str]) -> dict[str, str]:
    if len(json.dumps(labels)) > MAX_LABELS_BYTES:
        raise ValueError(f"must be at most {MAX_LABELS_BYTES} bytes as JSON")
    return labels


def _duration(text: str) -> str:
    parse_duration(text)
    return text


def json_pattern(pattern: re.Pattern[str]) -> str:
    """Write a pattern that is matched from the begin as JSON Schema does, which searches."""
    matched = pattern.pattern.removesuffix(r"\Z")
    return f"^{matched}$"


Text = Annotated[str, Field(min_length=1)]
NoControls = Annotated[
    str,
    AfterValidator(_no_control_characters),
    Field(json_schema_extra={"pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$"}),
]
"""Text without control characters."""

Labels = Annotated[dict[str, str], AfterValidator(_not_too_large)]
"""What a caller finds sessions by."""

PortNumber = Annotated[int, Field(ge=1, le=65535)]
SessionId = Annotated[NoControls, Field(min_length=1, max_length=256)]
Duration = Annotated[
    str,
    AfterValidator(_duration),
    Field(json_schema_extra={"pattern": "^([0-9]{1,6}h([0-9]{1,6}m)?|[0-9]{1,6}m)$"}),
]
"""`<hours>h<minutes>m`, at most 8760h; what is below one minute counts as one minute."""
EnvironmentName = Annotated[
    str,
    AfterValidator(_environment_name),
    Field(
        min_length=1,
        json_schema_extra={
            "pattern": r"^[^=\u0000]+$",
            "not": {"pattern": json_pattern(_RESERVED)},
        },
    ),
]
"""The name of a variable that a caller sets."""
