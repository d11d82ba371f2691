"""The SQL that differs between databases; all other SQL runs on SQLite and PostgreSQL alike."""

import json
from collections.abc import Collection, Sequence
from typing import Protocol


class Dialect(Protocol):
    """Parts of statements, and the values of parameters that are lists."""

    def elements(self, name: str) -> str:
        """Return a table of the elements of the list `:name`: `position` and `value`."""

    def in_list(self, name: str) -> str:
        """Return a condition to write after a column: its value is in the list `:name`."""

    def list_value(self, items: Sequence[str | int]) -> object:
        """Return the value of a parameter that is a list."""

    def contains(self, column: str, name: str) -> str:
        """Return the condition that a text contains the text `:name`."""

    def json_field(self, column: str, name: str) -> str:
        """Return the field `:name` of a JSON object, NULL if it has none."""

    def rows_as_json(self, columns: str, parsed: Collection[str]) -> str:
        """Return the aggregate of these columns of all rows: a JSON list of lists.

        `parsed`: columns whose texts are JSON.
        """

    def without_index(self, column: str) -> str:
        """Return a column so that the planner does not find rows by an index of it."""


class SqliteDialect:
    """The SQL of SQLite, with lists as JSON."""

    def elements(self, name: str) -> str:
        """Return the elements with their positions from 0."""
        return f"(SELECT key AS position, value FROM json_each(:{name}))"  # noqa: S608

    def in_list(self, name: str) -> str:
        """Return a subquery, so that the statement does not depend on the length of the list."""
        return f"IN (SELECT value FROM json_each(:{name}))"  # noqa: S608

    def list_value(self, items: Sequence[str | int]) -> object:
        """Return the list as JSON."""
        return json.dumps(items)

    def contains(self, column: str, name: str) -> str:
        """Compare as `instr` does, so that no character has a meaning."""
        return f"instr({column}, :{name}) > 0"

    def json_field(self, column: str, name: str) -> str:
        """Search the object: in the paths of `->>` some characters of a name have a meaning."""
        return f"(SELECT value FROM json_each({column}) WHERE key = :{name})"  # noqa: S608

    def rows_as_json(self, columns: str, parsed: Collection[str]) -> str:
        """Return all rows in one step: each step waits for Python's interpreter lock."""
        names = columns.split(", ")
        values = ", ".join(f"json({name})" if name in parsed else name for name in names)
        return f"json_group_array(json_array({values}))"

    def without_index(self, column: str) -> str:
        """Write the column as an expression, which no index has."""
        return f"+{column}"


SQLITE = SqliteDialect()
