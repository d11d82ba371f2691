"""The rows of sessions that hosts report, as the evaluation of reports reads them."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from controlplane.domain.events.sessions import SessionSubject
from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.sessions.adoption import NamingRow
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.sessions.session_columns import SUBJECT, port_values
from tiltyard.runtime.clock import to_ms

_REPORTED = (
    "confirmed",
    "state",
    "host",
    "ports",
    "injected_env",
    "started_ms",
    "end_reason",
    "exit_code",
    "detail",
    "failed_ms",
    "ready_ms",
)
"""The columns that hosts report; `confirmed` is that they report the session at all."""
_JSON = ("ports", "injected_env")
_SUBJECT = tuple(f"session.{column}" for column in SUBJECT.split(", "))
_NAMED_BY = ("session.agent", "ended_ms", "stop_requested_ms", "revoked_ms")
_SELECTED = ", ".join((*_SUBJECT, *_NAMED_BY, *_REPORTED))
_SUBJECT_END = len(_SUBJECT)
_FACTS = _SUBJECT_END + len(_NAMED_BY)

RowValues = list[Any]
"""The selected columns of a row."""


class ReportedRow(NamedTuple):
    """The row of a reported session. `reported` has its values as `values_of` returns them."""

    subject: SessionSubject
    named_by: NamingRow
    reported: dict[str, Any]


def values_of(session: HostSession) -> dict[str, Any]:
    """Return what the row of a session says after its report, with lists and objects decoded."""
    return {
        "confirmed": True,
        "state": session.state,
        "host": session.host,
        "ports": port_values(session.ports),
        "injected_env": session.injected_env,
        "started_ms": to_ms(session.create_time),
        "end_reason": session.end_reason,
        "exit_code": session.exit_code,
        "detail": session.detail,
        "failed_ms": to_ms(session.failure_time),
        "ready_ms": to_ms(session.ready_time),
    }


def read_rows(db: Database, sessions: Iterable[HostSession]) -> dict[str, RowValues]:
    """Read the rows of the live ones of some sessions, by internal id.

    Snapshots and the answers of claims consist of these. One query reads them in one step, since
    each step of SQLite waits for the interpreter lock, which the event loop of a starting control
    plane holds.
    """
    live = [s.internal_id for s in sessions if not (s.is_standby or s.state.ended)]
    dialect = db.dialect
    content = dialect.rows_as_json(f"internal_id, {_SELECTED}", _JSON)
    [rows] = db.execute(
        f"SELECT {content} FROM session LEFT JOIN agent ON agent.name = session.agent"  # noqa: S608
        f" WHERE internal_id {dialect.in_list('ids')}",
        {"ids": dialect.list_value(live)},
    ).fetchone()
    return {internal_id: values for internal_id, *values in json.loads(rows)}


def says_same(values: RowValues, agent: str, session: HostSession) -> bool:
    """Return whether a row says what its agent reports of a live session, and no more."""
    is_plain = values[_SUBJECT_END:_FACTS] == [agent, None, None, None]
    return is_plain and values[_FACTS:] == [*values_of(session).values()]


def read_row(db: Database, internal_id: str) -> ReportedRow | None:
    """Read the row that has an internal id."""
    values = db.execute(
        f"SELECT {_SELECTED} FROM session LEFT JOIN agent ON agent.name = session.agent"  # noqa: S608
        " WHERE internal_id=:id",
        {"id": internal_id},
    ).fetchone()
    if values is None:
        return None
    row = row_of([*values])
    decoded = {column: json.loads(row.reported[column]) for column in _JSON}
    return row._replace(reported=row.reported | decoded)


def row_of(values: RowValues) -> ReportedRow:
    """Convert the columns of a row."""
    agent, ended_ms, stop_requested_ms, revoked_ms = values[_SUBJECT_END:_FACTS]
    named_by = NamingRow(
        agent,
        has_ended=ended_ms is not None,
        is_stop_requested=stop_requested_ms is not None,
        is_revoked=revoked_ms is not None,
    )
    reported = dict(zip(_REPORTED, values[_FACTS:], strict=True))
    return ReportedRow(SessionSubject(*values[:_SUBJECT_END]), named_by, reported)
