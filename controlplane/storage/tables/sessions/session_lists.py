"""Lists of sessions: all of an account, and pages over all accounts."""

import json
from collections.abc import AsyncGenerator
from dataclasses import asdict

from controlplane.domain.sessions.sessions import PageFilter, Session, SessionFilter
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.dialect import Dialect
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.sessions import COLUMNS, session_of

PORTION = 5000  # Rows per query, between those of other accounts: about 10 ms
PORTION_BYTES = 256 * 1024
"""Labels and variables that end a portion early, since a list with a slow reader holds one."""

_LARGEST = 2**63 - 1  # Of the database's integers; a caller's bound may be larger

_WITH_LABEL = "live_label WHERE account = :account AND name = :name{0} AND value = :value{0}"

Query = tuple[str, dict[str, int | str | None]]  # SQL and its parameters


async def find(store: Store, wanted: SessionFilter) -> AsyncGenerator[list[Session], None]:
    """Read sessions of an account in the order in which their ids were taken.

    Reads PORTION rows at a time, so that other lists run in between and no long read blocks
    checkpoints of the write-ahead log.
    """
    after = None
    looked_at = PORTION
    while looked_at == PORTION:
        found, after, looked_at = await store.read(_portion, wanted, after)
        if found:
            yield found


def _portion(
    db: Database, wanted: SessionFilter, after: int | None
) -> tuple[list[Session], int | None, int]:
    """Read the matches in the next PORTION rows, the last row's number and their count."""
    upto, looked_at = db.execute(*portion_query(wanted, after)).fetchone()
    found: list[Session] = []
    size = 0
    for number, *columns in (
        db.execute(*list_query(db.dialect, wanted, after, upto)) if looked_at else ()
    ):
        session = session_of(columns)
        found.append(session)
        size += len(session.labels) + len(session.injected_env)
        if size >= PORTION_BYTES:
            return found, number, PORTION
    return found, upto, looked_at


def find_page(db: Database, wanted: PageFilter) -> tuple[list[Session], int | None]:
    """Read a page, newest first, and `before` of the next one, if any.

    A session's place is its row number, which grows with every reserved id.
    """
    found = db.execute(*page_query(wanted)).fetchall()
    shown = found[: wanted.limit]
    next_before = shown[-1][0] if len(found) > wanted.limit else None
    return [session_of(row[1:]) for row in shown], next_before


def portion_query(wanted: SessionFilter, after: int | None) -> Query:
    """Build the query of the last number and the count of the next PORTION rows."""
    bound = "" if after is None else " AND number > :after"
    chosen = f"SELECT number FROM {_rows(wanted)}{bound} ORDER BY number LIMIT :portion"  # noqa: S608
    sql = f"SELECT max(number), count(*) FROM ({chosen}) AS chosen"  # noqa: S608
    return sql, _values(wanted) | {"after": after, "portion": PORTION}


def list_query(
    dialect: Dialect, wanted: SessionFilter, after: int | None = None, upto: int | None = None
) -> Query:
    """Build the query of a list over rows `after` one and `upto` another."""
    rows = _rows(wanted)
    if after is not None:
        rows += " AND number > :after"
    if upto is not None:
        rows += " AND number <= :upto"
    if wanted.labels and not wanted.ended_too:
        labelled = f"number IN (SELECT number FROM {rows})"  # noqa: S608
        rows = f"session WHERE ended_ms IS NULL AND {labelled}"
    conditions = [rows, *_conditions(dialect, wanted)]
    sql = f"SELECT number, {COLUMNS} FROM {' AND '.join(conditions)} ORDER BY number"  # noqa: S608
    return sql, _values(wanted) | {"after": after, "upto": upto}


def _rows(wanted: SessionFilter) -> str:
    """Return the FROM clause of rows that one index finds."""
    if wanted.ended_too:
        return "session WHERE account = :account"
    if wanted.labels:
        return _WITH_LABEL.format(0)
    live = "session WHERE account = :account AND ended_ms IS NULL"
    for column in ("application", "tag"):
        if getattr(wanted, column) is not None:
            return f"{live} AND {column} = :{column}"
    return live


def _conditions(dialect: Dialect, wanted: SessionFilter) -> list[str]:
    """Return the conditions of a list besides the account."""
    equal = ("location", "application", "tag", "host")
    conditions = [f"{name} = :{name}" for name in equal if getattr(wanted, name) is not None]
    if wanted.more_players_than is not None:
        conditions.append("player_count > :low")
    if wanted.fewer_players_than is not None:
        conditions.append("player_count <= :high")
    for number in range(len(wanted.labels)):
        if wanted.ended_too:
            # The search of the text rules out most rows; parsing JSON takes longer.
            conditions.append(dialect.contains("labels", f"json{number}"))
            conditions.append(f"{dialect.json_field('labels', f'name{number}')} = :value{number}")
        elif number:  # the first chose the rows
            conditions.append(
                f"EXISTS (SELECT 1 FROM {_WITH_LABEL.format(number)} AND number = session.number)"  # noqa: S608
            )
    return conditions


def _values(wanted: SessionFilter) -> dict[str, int | str | None]:
    low = wanted.more_players_than
    high = wanted.fewer_players_than
    values: dict[str, int | str | None] = {
        "account": wanted.account,
        # A starting session has no host and may have no tag: "" matches none.
        "location": wanted.location or None,
        "application": wanted.application or None,
        "tag": wanted.tag or None,
        "host": wanted.host or None,
        "low": None if low is None else max(-1, min(low, _LARGEST)),
        "high": None if high is None else max(-1, min(high - 1, _LARGEST)),
    }
    for number, (name, value) in enumerate(wanted.labels.items()):
        values |= {f"name{number}": name, f"value{number}": value}
        values[f"json{number}"] = json.dumps(value)
    return {name: _storable(value) for name, value in values.items()}


def _storable(value: int | str | None) -> int | str | None:
    """Replace text that no column can hold (lone surrogates) by NULL: it equals nothing."""
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        return None
    return value


def page_query(wanted: PageFilter) -> tuple[str, dict[str, int | str | None]]:
    """Build the query of a page and one more row, and its parameters.

    A subquery chooses the rows, so that columns are read for those alone.
    """
    filters = {
        "number < :before": wanted.before,
        "account = :account": wanted.account,
        "agent = :agent": wanted.agent,
        "location = :location": wanted.location,
        "application = :application": wanted.application,
    }
    conditions = [condition for condition, value in filters.items() if value is not None]
    if not wanted.ended_too:
        conditions.append("ended_ms IS NULL")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    chosen = f"SELECT number FROM session{where} ORDER BY number DESC LIMIT :limit + 1"  # noqa: S608
    sql = (
        f"SELECT session.number, {COLUMNS} FROM session"  # noqa: S608
        f" WHERE session.number IN ({chosen}) ORDER BY session.number DESC"
    )
    return sql, asdict(wanted)
