"""A strict JSON reader: rejects what parsers interpret differently."""

import json
import math
import re
from typing import Any, NoReturn

MAX_NESTING = 32
MAX_VALUES = 10_000  # Of one text, keys included: decoding and validating 10,000 takes about 20 ms
_TOO_DEEP = f"is nested deeper than {MAX_NESTING} levels"
_MAX_INTEGER_DIGITS = 19
_EXACT = 2**53  # Below this, floats represent every integer
_INTEGERS = range(-(2**63), 2**63)
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")


def count_values(body: bytes) -> int:
    """Count the values of a JSON text, keys included, without decoding it.

    A value is at the beginning or after one of `[{,:`, which are counted outside of strings.
    Linear in the bytes: some milliseconds for 1 MiB.
    """
    # Without escaped backslashes, an escaped quote is inside a string and any other one is a
    # delimiter.
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    outside = b"".join(unescaped.split(b'"')[::2])
    return 1 + len(outside) - len(outside.translate(None, b"[{,:"))


def read_json(body: bytes, *, max_values: int = MAX_VALUES) -> Any:
    """Read a JSON text.

    Raises:
        ValueError: It is not JSON, or has a repeated key, a non-finite number, an integer
            beyond 64 bits, NUL or a lone surrogate, more than 32 levels, or more than `max_values`
            values.
    """
    if len(body) >= max_values and count_values(body) > max_values:
        raise ValueError(f"contains more than {max_values} values")
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except json.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode())
        raise ValueError(f"is not JSON: {error.msg} at byte {offset}") from None
    # Only escapes bring such characters, and a level takes a bracket.
    if rb"\u" in body or body.count(b"[") + body.count(b"{") > MAX_NESTING:
        _check(value)
    return value


def _text_of(item: Any) -> str:
    if isinstance(item, dict):
        return "".join(item)
    return item if isinstance(item, str) else ""


def _check(value: Any) -> None:
    """Check texts and nesting, without recursion."""
    pending = [(value, 1)]
    while pending:
        item, level = pending.pop()
        if _NOT_TEXT.search(_text_of(item)):
            raise ValueError("contains NUL or a lone surrogate in a string")
        if isinstance(item, dict | list):
            if level > MAX_NESTING:
                raise ValueError(_TOO_DEEP)
            children = item.values() if isinstance(item, dict) else item
            pending.extend((child, level + 1) for child in children)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("repeats a key")
    return found


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _MAX_INTEGER_DIGITS or int(text) not in _INTEGERS:
        raise ValueError("contains an integer beyond 64 bits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("contains a number that is not finite")
    # 48.0 and 4.8e1 are the integer 48 in JSON Schema and JavaScript.
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}, which is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_refuse_constant,
    parse_int=_integer,
    parse_float=_float,
)
