"""Sessions of every account in the database, page by page, as operators see them."""

from dataclasses import asdict, dataclass

from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions import COLUMNS, Session, session_of


@dataclass(frozen=True, slots=True)
class PageFilter:
    """What a page shall hold; None does not filter. `before` is where the last page ended."""

    limit: int
    before: int | None = None
    ended_too: bool = False
    account: str | None = None
    agent: str | None = None
    location: str | None = None
    application: str | None = None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, newest first; `next_before` is None when there are no more."""

    sessions: list[Session]
    next_before: int | None


class SessionPageStore:
    """Transactions on pages of sessions.

    The place of a session is its row's number: it grows with every id that is taken, and the
    indexes of live sessions keep its order.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(self, wanted: PageFilter) -> SessionPage:
        """Read a page."""
        sql, values = page_query(wanted)
        found = await self._store.read(sql, values, lambda row: (row[0], session_of(row[1:])))
        shown = found[: wanted.limit]
        next_before = shown[-1][0] if len(found) > wanted.limit else None
        return SessionPage([session for _, session in shown], next_before)


def page_query(wanted: PageFilter) -> tuple[str, dict[str, int | str | None]]:
    """Build the query of a page and one more row, and its parameters.

    The rows are chosen first, so that what is read of a row is read for those alone.
    """
    filters = {
        "rowid < :before": wanted.before,
        "account = :account": wanted.account,
        "agent = :agent": wanted.agent,
        "location = :location": wanted.location,
        "application = :application": wanted.application,
    }
    conditions = [condition for condition, value in filters.items() if value is not None]
    if not wanted.ended_too:
        conditions.append("ended_ms IS NULL")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    chosen = f"SELECT rowid FROM session{where} ORDER BY rowid DESC LIMIT :limit + 1"  # noqa: S608
    sql = (
        f"SELECT session.rowid, {COLUMNS} FROM session"  # noqa: S608
        f" WHERE session.rowid IN ({chosen}) ORDER BY session.rowid DESC"
    )
    return sql, asdict(wanted)
