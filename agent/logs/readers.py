"""How many may read logs at one time: of a session, for an account, and of the host.

For a follower the engine keeps a stream open, and an inotify instance of root's, of which there
are 128 by default. A reader that does not follow has a stream open for as long as it reads.
"""

import contextlib
from collections.abc import Iterator

from agent.domain.errors import ReadersBusyError
from agent.domain.fair_share import exceeds_share
from agent.domain.session import Session

EACH_HOST = 64
"""Followers and other readers, each; one account may have as many as are left for others."""
EACH_SESSION = 16


class LogReaders:
    """Counts who reads logs, followers and others apart; for one event loop."""

    def __init__(self) -> None:
        self._followed: list[Session] = []
        self._read: list[Session] = []

    @contextlib.contextmanager
    def taken(self, session: Session, *, follow: bool) -> Iterator[None]:
        """Take a slot until the block is left.

        Raises:
            ReadersBusyError: None is free.
        """
        what, slots = ("followers", self._followed) if follow else ("readers", self._read)
        account = session.spec.identity.account
        mine = sum(each.spec.identity.account == account for each in slots)
        if sum(each.internal_id == session.internal_id for each in slots) >= EACH_SESSION:
            raise ReadersBusyError(f"this session has {EACH_SESSION} {what} already")
        if len(slots) >= EACH_HOST:
            raise ReadersBusyError(f"the host has {len(slots)} {what} already")
        if exceeds_share(mine, 1, len(slots), EACH_HOST):
            raise ReadersBusyError(
                f"the account has {mine} {what} on the host, the others are kept for others"
            )
        slots.append(session)
        try:
            yield
        finally:
            slots.remove(session)
