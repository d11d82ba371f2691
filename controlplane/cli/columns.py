"""Formats API responses as tables."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tiltyard.runtime import tables

Row = Mapping[str, Any]
Column = str | tuple[str, str | Callable[[Row], str]]
"""A property, which names the column; or a heading with a property or a formatter."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = frozenset(
    {"certificateExpires", "created", "drainDeadline", "expires", "first", "last", "lastReport"}
    | {"failingSince", "nextAttempt"}
    | {"lastUsed", "lost", "revoked", "time"}
)


def table(columns: Sequence[Column], rows: Iterable[Row]) -> list[str]:
    """Format a table as lines."""
    cells = ([_cell(column, row) for column in columns] for row in rows)
    return tables.table(list(map(_head, columns)), cells)


def sheet(columns: Sequence[Column], row: Row) -> list[str]:
    """Format one row as lines, one per column."""
    return tables.sheet((_head(column), _cell(column, row)) for column in columns)


def shown(key: str, value: Any) -> str:
    """Format the value of a property."""
    if value in (None, [], {}):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key in _TIMES:
        return time(value)
    if key == "latency":
        return f"{value:.3g} ms"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def time(milliseconds: int) -> str:
    """Format milliseconds since the epoch, in UTC."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%d %H:%M:%SZ")


def memory(mebibytes: float) -> str:
    """Format MiB."""
    return f"{mebibytes / 1024:.4g} GiB" if mebibytes >= 1024 else f"{mebibytes:.4g} MiB"


def cores(number: float) -> str:
    """Format cores."""
    return f"{number:.4g}"


def _head(column: Column) -> str:
    return re.sub("([A-Z])", r" \1", column).upper() if isinstance(column, str) else column[0]


def _cell(column: Column, row: Row) -> str:
    found = column if isinstance(column, str) else column[1]
    return shown(found, row[found]) if isinstance(found, str) else found(row)
