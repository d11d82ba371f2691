"""Formats an event as one line of logfmt or JSON.

Untrusted text is always inside a quoted value. Unprintable characters, such as line breaks, cursor
movement and bidirectional controls, become JSON escapes in both forms. Secrets are redacted before
values are truncated; of a token the public id remains, so that it can be revoked.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Literal

Form = Literal["logfmt", "json"]

MOST_CHARACTERS = 1_000  # Of one value, before escaping
MOST_OF_A_TRACEBACK = 8_000  # Characters; the end is kept, with the last frames and the error
EXCEPTION = "exception"  # The field of a traceback
CUT = "…"  # Marks a truncated value

REDACTED = "[redacted]"

# Also matches truncated tokens and wrong checksums. Underscores may be percent-encoded.
_SECRET = re.compile(r"(ty(?:_|%5f)[0-9a-f]{16}(?:_|%5f))[0-9a-f]+", re.IGNORECASE | re.ASCII)
_CREDENTIALS = re.compile(
    r"""(x-registry-auth\W+(?:b['"])?|authorization\W+(?:b['"])?(?:bearer|basic)\s+)[^\s'",;]+""",
    re.IGNORECASE | re.ASCII,
)

_BARE = re.compile(r'[^\s"=\\]+')


def line(fields: Mapping[str, object], form: Form) -> str:
    """Format the fields of one event, in their order, without a line break."""
    values = {name: _value(name, value) for name, value in fields.items()}
    if form == "json":
        return _printable(json.dumps(values, ensure_ascii=False))
    return " ".join(f"{name}={_logfmt(value)}" for name, value in values.items())


def _value(name: str, value: object) -> str | float | bool | None:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return round(value, 3)
    try:
        text = _text(value)
    except Exception as error:  # noqa: BLE001 - a broken value must not lose the line
        return f"cannot be written: {type(error).__name__}"
    if name == EXCEPTION:
        return text if len(text) <= MOST_OF_A_TRACEBACK else CUT + text[-MOST_OF_A_TRACEBACK:]
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + CUT


def _text(value: object) -> str:
    """Redact each item by itself: punctuation of containers could split a secret."""
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(key)}: {_text(each)}" for key, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_text, value))
    return redact(str(value))


def _logfmt(value: str | float | bool | None) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if value.isprintable() and _BARE.fullmatch(value):
        return value
    return _printable(json.dumps(value, ensure_ascii=False))


def _printable(text: str) -> str:
    """Escape unprintable characters that JSON leaves; they occur in strings only."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def redact(text: str) -> str:
    """Redact secrets of tokens, and everything after the names of credential headers."""
    lower = text.lower()  # The patterns alone would take more than half of the time of a line.
    if "ty_" in lower or "ty%5f" in lower:
        text = _SECRET.sub(rf"\1{REDACTED}", text)
    if "auth" in lower:
        text = _CREDENTIALS.sub(rf"\1{REDACTED}", text)
    return text
