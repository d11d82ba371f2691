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

_Value = str | float | bool | None
_is_bare = re.compile(r'[^\s"=\\]+').fullmatch
_is_plain = re.compile(r"[!#-<>-\[\]-~]+").fullmatch  # Of ASCII, which is faster to match
_encoded = json.JSONEncoder(ensure_ascii=False).encode


def line(fields: Mapping[str, object], form: Form) -> str:
    """Format the fields of one event, in their order, without a line break."""
    text = _joined(fields) if form == "logfmt" else _printable(_encoded(_values(fields)))
    # Almost no line has a secret: one search in the line is faster than one in each value.
    if _may_have_secrets(text):
        values = {name: _value(name, value) for name, value in fields.items()}
        text = _joined(values) if form == "logfmt" else _printable(_encoded(values))
    return text


def _joined(fields: Mapping[str, object]) -> str:
    """Join fields as logfmt. Most values are short texts that need no quotes."""
    parts = []
    for name, value in fields.items():
        if type(value) is str and len(value) <= MOST_CHARACTERS:
            text = value if _is_plain(value) else _logfmt(value)
        else:
            text = _logfmt(_value(name, value))
        parts.append(f"{name}={text}")
    return " ".join(parts)


def _values(fields: Mapping[str, object]) -> dict[str, _Value]:
    return {
        name: value
        if type(value) is str and len(value) <= MOST_CHARACTERS
        else _value(name, value)
        for name, value in fields.items()
    }


def _value(name: str, value: object) -> _Value:
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


def _logfmt(value: _Value) -> str:
    if not isinstance(value, str):
        return _encoded(value)
    if _is_plain(value) or (value.isprintable() and _is_bare(value)):
        return value
    return _printable(_encoded(value))


def _printable(text: str) -> str:
    """Escape unprintable characters that JSON leaves; they occur in strings only."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def redact(text: str) -> str:
    """Redact secrets of tokens, and everything after the names of credential headers."""
    if not _may_have_secrets(text):
        return text
    text = _SECRET.sub(rf"\1{REDACTED}", text)
    return _CREDENTIALS.sub(rf"\1{REDACTED}", text)


def _may_have_secrets(text: str) -> bool:
    """Return whether one of the patterns may match; they would take most of the time of a line."""
    lower = text.lower()
    return "ty_" in lower or "ty%5f" in lower or "auth" in lower
