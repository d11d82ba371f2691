"""The lists of an account's sessions in the database."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.session_store import COLUMNS, Session, session_of
from controlplane.store import Store

_LARGEST = 2**63 - 1
"""Of the database's integers. A caller's bound may be of any size."""


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
    """Queries of lists, beside the transactions: ten thousand rows hold up no start."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, wanted: SessionFilter) -> list[Session]:
        """Read sessions of an account in the order of their creation."""
        sql, values = list_query(wanted)
        found = await self._store.read(sql, values, session_of)
        return sorted(found, key=lambda session: (session.created_ms, session.id))


def list_query(wanted: SessionFilter) -> tuple[str, list[int | str | None]]:
    """Build the query of a list, in any order, and its values."""
    low, high = wanted.more_players_than, wanted.fewer_players_than
    filters: dict[str, int | str | None] = {
        "account = ?": wanted.account,
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
    if not wanted.ended_too:
        conditions.append("ended_ms IS NULL")
    where = " AND ".join(conditions)
    return f"SELECT {COLUMNS} FROM session WHERE {where}", [_storable(v) for v in values]  # noqa: S608


def _storable(value: int | str | None) -> int | str | None:
    """Give NULL, which equals nothing, for text that no column can hold: a lone surrogate."""
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        return None
    return value
