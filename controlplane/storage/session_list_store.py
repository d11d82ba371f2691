"""The lists of an account's sessions in the database."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from controlplane.storage.session_store import COLUMNS, Session, session_of
from controlplane.storage.store import Store

PORTION = 5000
"""Rows that are looked at before others have their turn: some 10 ms."""

_LARGEST = 2**63 - 1
"""Of the database's integers. A caller's bound may be of any size."""

_INDEX = {False: "live_session_by_account", True: "session_by_account"}
_ACCOUNT = {False: "account = ?", True: "account || '' = ?"}
_LIVE = {False: " AND ended_ms IS NULL", True: ""}
"""By whether ended sessions are wanted, too."""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """What a list shall hold; None and {} do not filter."""

    account: str
    ended_too: bool = False
    location: str | None = None
    application: str | None = None
    tag: str | None = None
    host: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    more_players_than: int | None = None
    fewer_players_than: int | None = None


class SessionListStore:
    """Queries of lists, beside the transactions: ten thousand rows hold up no start.

    They look at PORTION rows at a time, so that lists of other accounts come in between, and no
    long read keeps the write-ahead log from being emptied.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, wanted: SessionFilter) -> AsyncGenerator[list[Session], None]:
        """Read sessions of an account in the order in which their ids were taken."""
        after = 0
        while True:
            sql, values = portion_query(wanted, after)
            [(upto, looked_at)] = await self._store.read(sql, values, _pair)
            if upto is not None:
                sql, values = list_query(wanted, after, upto)
                found = await self._store.read(sql, values, session_of)
                if found:
                    yield found
                after = upto
            if looked_at < PORTION:
                return


def portion_query(wanted: SessionFilter, after: int) -> tuple[str, list[int | str | None]]:
    """Build the query of the last row, and the number, of the next PORTION rows to look at."""
    sql = (
        "SELECT max(number), count(*) FROM (SELECT rowid AS number FROM session"  # noqa: S608
        f" INDEXED BY {_INDEX[wanted.ended_too]} WHERE {_ACCOUNT[wanted.ended_too]} AND rowid > ?"
        f"{_LIVE[wanted.ended_too]} ORDER BY rowid LIMIT ?)"
    )
    return sql, [wanted.account, after, PORTION]


def list_query(
    wanted: SessionFilter, after: int = 0, upto: int = _LARGEST
) -> tuple[str, list[int | str | None]]:
    """Build the query of a list over the rows after one and up to another, and its values."""
    low, high = wanted.more_players_than, wanted.fewer_players_than
    filters: dict[str, int | str | None] = {
        _ACCOUNT[wanted.ended_too]: wanted.account,
        "rowid > ?": after,
        "rowid <= ?": upto,
        "location = ?": wanted.location,
        "application = ?": wanted.application,
        "tag = ?": wanted.tag,
        "host = ?": wanted.host,
        "player_count > ?": None if low is None else max(-1, min(low, _LARGEST)),
        "player_count < ?": None if high is None or high > _LARGEST else max(0, high),
    }
    used = [(text, value) for text, value in filters.items() if value is not None]
    conditions = [text for text, _ in used]
    values = [value for _, value in used]
    for label in wanted.labels.items():
        conditions.append("EXISTS (SELECT 1 FROM json_each(labels) WHERE key = ? AND value = ?)")
        values.extend(label)
    sql = (
        f"SELECT {COLUMNS} FROM session INDEXED BY {_INDEX[wanted.ended_too]}"  # noqa: S608
        f" WHERE {' AND '.join(conditions)}{_LIVE[wanted.ended_too]} ORDER BY rowid"
    )
    return sql, [_storable(value) for value in values]


def _pair(row: tuple[int | None, int]) -> tuple[int | None, int]:
    return row


def _storable(value: int | str | None) -> int | str | None:
    """Give NULL, which equals nothing, for text that no column can hold: a lone surrogate."""
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        return None
    return value
