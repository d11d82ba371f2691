"""Transactions of sessions: they write neither tokens nor accounts nor applications."""

from collections.abc import Callable
from typing import Any

from controlplane.storage.tables import accounts, audit, players, reports, session_rows, sessions

HOT: frozenset[Callable[..., Any]] = frozenset(
    {
        accounts.note_use,
        audit.remove_until,
        players.join,
        players.leave,
        players.leave_all,
        reports.write_all,
        reports.write_stopped,
        session_rows.end_all_missing,
        session_rows.end_stopped,
        session_rows.remove_numbers,
        sessions.begin_attempt,
        sessions.end_attempt,
        sessions.free,
        sessions.request_stop,
        sessions.reserve,
    }
)
"""What is remembered of tokens and applications stays valid after them."""
