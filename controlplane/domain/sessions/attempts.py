"""Attempts to start a session."""

from typing import NamedTuple


class Attempt(NamedTuple):
    """An attempt of a start on one host, under its own internal id; the row of the start names it.

    An attempt to claim has the internal id of the standby. `host` is the public address.
    `is_unanswered`: the host was called and has not confirmed that nothing started.
    """

    internal_id: str
    agent: str
    host: str
    is_unanswered: bool = False
