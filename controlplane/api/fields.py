"""Types of fields that several bodies have in common."""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field

from controlplane.durations import parse_duration


def no_control_characters(text: str) -> str:
    """Refuse characters of the category Cc; a validator."""
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError("must not hold control characters")
    return text


def _duration(text: str) -> str:
    parse_duration(text)
    return text


Text = Annotated[str, Field(min_length=1)]
PortNumber = Annotated[int, Field(ge=1, le=65535)]
SessionId = Annotated[
    str, Field(min_length=1, max_length=256), AfterValidator(no_control_characters)
]
Duration = Annotated[str, AfterValidator(_duration)]
