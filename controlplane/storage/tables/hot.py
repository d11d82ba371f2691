"""Transactions of sessions: they write neither tokens nor accounts nor applications."""

from collections.abc import Callable
from typing import Any

from controlplane.storage.tables import accounts, players, reports, session_rows, sessions

HOT: frozenset[Callable[..., Any]] = frozenset(
    {
        accounts.note_use,
        players.join,
        players.leave,
        players.leave_all,
        reports.write_all,
        reports.write_stopped,
        session_rows.end_all_missing,
        session_rows.end_stopped,
        sessions.begin_attempt,
        sessions.end_attempt,
        sessions.free,
        sessions.request_stop,
        sessions.reserve,
    }
)
"""What is remembered of tokens and applications stays valid after them."""
