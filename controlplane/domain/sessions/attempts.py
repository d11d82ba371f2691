"""Attempts to start a session."""

from typing import NamedTuple


class Attempt(NamedTuple):
    """What the row of a start names: one try on one host, under its own internal id.

    For a claim the internal id is that of the standby. `host` is the public address.
    `is_unanswered`: the host was called and has not confirmed that nothing started.
    """

    internal_id: str
    agent: str
    host: str
    is_unanswered: bool = False
