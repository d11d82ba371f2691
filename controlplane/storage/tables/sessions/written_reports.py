"""Reads which sessions have not changed since their reports were written; see `Written`."""

import json
from collections.abc import Sequence

from controlplane.storage.engine.database import Database


def unchanged_since_written(db: Database, agent: str, ids: Sequence[str]) -> set[str]:
    """Return the live sessions among `ids` that have a report in their row, and no stop request.

    They are read in one step, since each step of SQLite waits for the interpreter lock.
    """
    dialect = db.dialect
    [rows] = db.execute(
        f"SELECT {dialect.rows_as_json('internal_id', ())} FROM session"  # noqa: S608
        " JOIN agent ON agent.name = session.agent"
        f" WHERE internal_id {dialect.in_list('ids')}"
        f" AND {dialect.without_index('agent')}=:agent AND {dialect.without_index('ended_ms')}"
        " IS NULL AND confirmed AND stop_requested_ms IS NULL AND revoked_ms IS NULL",
        {"ids": dialect.list_value(ids), "agent": agent},
    ).fetchone()
    return {internal_id for [internal_id] in json.loads(rows)}
