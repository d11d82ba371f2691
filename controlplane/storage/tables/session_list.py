"""The lists of an account's sessions in the database."""

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions import COLUMNS, Session, session_of

PORTION = 5000
"""Rows that are looked at before others have their turn: some 10 ms."""

_LARGEST = 2**63 - 1
"""Of the database's integers. A caller's bound may be of any size."""

_LABEL = "live_label WHERE account = ? AND name = ? AND value = ?"

Place = int | str
"""Where a session stands in the order of a list."""


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


@dataclass(frozen=True, slots=True)
class _Walk:
    """The rows that a list looks at: what one index finds, in the order of `place`.

    `rows` is what follows FROM and takes `values`; `first` is before every place.
    """

    rows: str
    values: tuple[str, ...]
    place: str = "rowid"
    first: Place = 0


class SessionListStore:
    """Queries of lists, beside the transactions: ten thousand rows hold up no start.

    They look at PORTION rows at a time, so that lists of other accounts come in between, and no
    long read keeps the write-ahead log from being emptied.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, wanted: SessionFilter) -> AsyncGenerator[list[Session], None]:
        """Read sessions of an account in the order in which their ids were taken.

        Live ones with a label are in the order of their ids.
        """
        after = None
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


def portion_query(wanted: SessionFilter, after: Place | None) -> tuple[str, list[Place | None]]:
    """Build the query of the last row, and the number, of the next PORTION rows to look at."""
    walk = _walk(wanted)
    sql = (
        f"SELECT max(place), count(*) FROM (SELECT {walk.place} AS place FROM {walk.rows}"  # noqa: S608
        f" AND {walk.place} > ? ORDER BY {walk.place} LIMIT ?)"
    )
    after = walk.first if after is None else after
    return sql, [*map(_storable, walk.values), after, PORTION]


def list_query(
    wanted: SessionFilter, after: Place | None = None, upto: Place | None = None
) -> tuple[str, list[Place | None]]:
    """Build the query of a list over the rows after one and up to another, and its values."""
    walk, (low, high) = _walk(wanted), (wanted.more_players_than, wanted.fewer_players_than)
    filters: dict[str, Place | None] = {
        f"{walk.place} > ?": walk.first if after is None else after,
        f"{walk.place} <= ?": upto,
        # A session that is being started has no host and may have no tag: "" matches none.
        "location = nullif(?, '')": wanted.location,
        "application = nullif(?, '')": wanted.application,
        "tag = nullif(?, '')": wanted.tag,
        "host = nullif(?, '')": wanted.host,
        "player_count > ?": None if low is None else max(-1, min(low, _LARGEST)),
        "player_count < ?": None if high is None or high > _LARGEST else max(0, high),
    }
    used = [(text, value) for text, value in filters.items() if value is not None]
    conditions = [text for text, _ in used]
    values = [*walk.values, *(value for _, value in used)]
    labels = list(wanted.labels.items())
    for name, value in labels if wanted.ended_too else labels[1:]:  # of live ones: see _walk
        if wanted.ended_too:
            # Of most rows the text alone tells that they are others'; reading JSON takes longer.
            conditions.append(
                "instr(labels, ?)"
                " AND EXISTS (SELECT 1 FROM json_each(labels) WHERE key = ? AND value = ?)"
            )
            values.extend((json.dumps(value), name, value))
        else:
            conditions.append(f"EXISTS (SELECT 1 FROM {_LABEL} AND session = id)")  # noqa: S608
            values.extend((wanted.account, name, value))
    sql = (
        f"SELECT {COLUMNS} FROM {walk.rows} AND {' AND '.join(conditions)}"  # noqa: S608
        f" ORDER BY {walk.place}"
    )
    return sql, [_storable(value) for value in values]


def _walk(wanted: SessionFilter) -> _Walk:
    """Choose the index that is likely to find the fewest rows."""
    account = wanted.account
    if wanted.ended_too:
        return _Walk("session INDEXED BY session_by_account WHERE account || '' = ?", (account,))
    if wanted.labels:
        labelled = f"(SELECT session AS labelled FROM {_LABEL})"  # noqa: S608
        rows = f"{labelled} CROSS JOIN session ON id = labelled WHERE account = ?"
        first, *_ = wanted.labels.items()
        return _Walk(rows, (account, *first, account), "labelled", "")
    for by in ("application", "tag"):
        if (value := getattr(wanted, by)) is not None:
            rows = f"session INDEXED BY live_session_by_{by} WHERE account || '' = ? AND {by} = ?"
            return _Walk(f"{rows} AND ended_ms IS NULL", (account, value))
    rows = "session INDEXED BY live_session_by_account WHERE account = ? AND ended_ms IS NULL"
    return _Walk(rows, (account,))


def _pair(row: tuple[Place | None, int]) -> tuple[Place | None, int]:
    return row


def _storable(value: Place | None) -> Place | None:
    """Give NULL, which equals nothing, for text that no column can hold: a lone surrogate."""
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        return None
    return value
