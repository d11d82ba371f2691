"""The database as transactions see it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from controlplane.domain.events.event import Event
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.dialect import Dialect

_T = TypeVar("_T")
_P = ParamSpec("_P")

Values = Mapping[str, Any]  # Parameters of a statement, by name
NO_VALUES: Values = {}  # Not to be changed


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement has written."""

    def fetchone(self) -> Any:
        """Return the next row, None after the last one."""

    def fetchall(self) -> list[Any]:
        """Return all further rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """The database within one transaction.

    What differs between databases is in `dialect`.
    """

    @property
    def dialect(self) -> Dialect:
        """The parts of statements that differ between databases."""

    def execute(self, sql: str, values: Values = NO_VALUES, /) -> Rows:
        """Execute a statement."""

    def executemany(self, sql: str, rows: Iterable[Values], /) -> int:
        """Execute a statement once for each row of values; return how many rows it has written."""

    def changed(self, topic: Topic, *key: str) -> None:
        """Note what the transaction changes, to be published after its COMMIT."""

    def append(self, event: Event) -> None:
        """Append an event to the log, in the order of the commits.

        It is written when the transaction commits: no query of the same transaction sees it.
        """


Transaction = Callable[Concatenate[Database, _P], _T]
"""A function of the database and the arguments of `Store.run`."""
