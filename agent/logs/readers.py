"""How many may read logs at one time: of a session, for an account, and of the host.

For a follower the engine keeps a stream open, and an inotify instance of root's, of which there
are 128 by default. A reader that does not follow has a stream open for as long as it reads.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.domain.errors import ReadersBusyError
from agent.domain.fair_share import exceeds_share
from agent.domain.session import Session

FOLLOWERS = READERS = 64
"""Of a host at one time, each; one account may have as many of them as are left for others."""
EACH_SESSION = 16


@dataclass(slots=True)
class _Slots:
    """Those that are taken, by account and session."""

    total: int
    what: str
    of_session: Counter[str] = field(default_factory=Counter)
    of_account: Counter[str] = field(default_factory=Counter)

    def obstacle(self, session: Session) -> str:
        """Return why a session's log can have no further reader; "" when it can."""
        taken, mine = self.of_account.total(), self.of_account[session.spec.identity.account]
        if self.of_session[session.internal_id] >= EACH_SESSION:
            return f"this session has {EACH_SESSION} {self.what} already"
        if taken >= self.total:
            return f"the host has {taken} {self.what} already"
        if exceeds_share(mine, 1, taken, self.total):
            return (
                f"the account has {mine} {self.what} on the host, the others are kept for others"
            )
        return ""


class LogReaders:
    """Counts who reads logs, followers and others apart; for one event loop."""

    def __init__(self) -> None:
        self._followers = _Slots(FOLLOWERS, "followers")
        self._readers = _Slots(READERS, "readers")

    @contextlib.contextmanager
    def taken(self, session: Session, *, follow: bool) -> Iterator[None]:
        """Take a slot until the block is left.

        Raises:
            ReadersBusyError: None is free.
        """
        slots = self._followers if follow else self._readers
        if obstacle := slots.obstacle(session):
            raise ReadersBusyError(obstacle)
        internal_id, account = session.internal_id, session.spec.identity.account
        slots.of_session[internal_id] += 1
        slots.of_account[account] += 1
        try:
            yield
        finally:
            slots.of_session -= Counter([internal_id])  # drops what has come to nothing
            slots.of_account -= Counter([account])
