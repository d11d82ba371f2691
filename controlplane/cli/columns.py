"""Columns of tables of API responses. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tiltyard.runtime import tables

Row = Mapping[str, Any]
Column = Callable[[Row], str]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table(columns: Mapping[str, Column], rows: Iterable[Row]) -> list[str]:
    """Give the lines of a table of columns."""
    cells = ([column(row) for column in columns.values()] for row in rows)
    return tables.table(list(columns), cells)


def sheet(columns: Mapping[str, Column], row: Row) -> list[str]:
    """Give the lines that show one row, a column a line."""
    return tables.sheet((name, column(row)) for name, column in columns.items())


def field(key: str, shown: Callable[[Any], str] = str) -> Column:
    """Make a column of a property; null is nothing."""

    def column(row: Row) -> str:
        value = row[key]
        return "" if value is None else shown(value)

    return column


def yes(value: bool) -> str:
    """Show a flag."""
    return "yes" if value else "no"


def words(values: Iterable[str]) -> str:
    """Show a list in a cell."""
    return ", ".join(values)


def as_json(value: object) -> str:
    """Show anything in a cell."""
    return json.dumps(value, ensure_ascii=False) if value else ""


def time(milliseconds: int) -> str:
    """Show a time since the epoch in UTC."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def memory(mebibytes: float) -> str:
    """Show MiB."""
    return f"{mebibytes / 1024:.4g} GiB" if mebibytes >= 1024 else f"{mebibytes:.4g} MiB"


def short_span(number: float) -> str:
    """Show a short span."""
    return f"{number:.3g} ms"


def cores(number: float) -> str:
    """Show cores."""
    return f"{number:.4g}"


def of(used: str, whole: str) -> str:
    """Show a part and its whole."""
    return f"{used} of {whole}"
