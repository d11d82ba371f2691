"""The line of each key in a TOML file, which tomllib does not report. Pure.

tomllib itself says where a statement ends: at the first line up to which it can be read alone,
since a string or a list that continues in the next line is not closed yet.
"""

import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from tiltyard.runtime.settings.mistakes import Key


def lines_of(text: str) -> dict[Key, int]:
    """Number the line, from 1, on which each key of a valid file is set first.

    A table has the line of its first header or key, an entry of a list that of the list.
    """
    found: dict[Key, int] = {}
    newest: dict[Key, int] = {}  # of each array of tables, which entry headers speak of
    table: Key = ()
    for line, is_header, content in _statements(text):
        if is_header:
            table = _entered(content, newest)
            keys: Iterator[Key] = (table[:length] for length in range(1, len(table) + 1))
        else:
            keys = _keys(content, table)
        for key in keys:
            found.setdefault(key, line)
    return found


def _statements(text: str) -> Iterator[tuple[int, bool, dict[str, Any]]]:
    """Give the first line of each statement, whether it is a table's header, and what it sets."""
    begin, statement = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        statement += line + "\n"
        try:
            content = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        yield begin, statement.lstrip().startswith("["), content
        begin, statement = number + 1, ""


def _entered(header: dict[str, Any], newest: dict[Key, int]) -> Key:
    """Give the table that a header begins, and note a new entry of an array of tables."""
    table: Key = ()
    inner: Any = header
    while inner:
        name, inner = next(iter(inner.items()))
        table = (*table, name)
        if isinstance(inner, list):
            newest[table] = newest.get(table, -1) + 1
            inner = inner[0]
        if table in newest:
            table = (*table, newest[table])
    return table


def _keys(content: Any, before: Key) -> Iterator[Key]:
    """Return all keys in a value, which follows the key `before`."""
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(content, dict):
        inner = content.items()
    elif isinstance(content, list):
        inner = enumerate(content)
    for part, value in inner:
        key = (*before, part)
        yield key
        yield from _keys(value, key)
