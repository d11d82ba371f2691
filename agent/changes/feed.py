"""Changes of a host for its watchers: coalesced per session, and bounded."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.domain.sessions.session import Session

PILE_LARGEST = 2000
"""Twice the live sessions of a host; a watcher with more pending gets a new snapshot."""

GATHER_SECONDS = 0.05
"""Longest delay of a change that no watcher waits for: it is reported with others."""


@dataclass(slots=True)
class Changes:
    """Changes since the last call; `snapshot` requests a new snapshot, `end` ends the watch."""

    sessions: tuple[Session, ...] = ()
    host: bool = False
    images: bool = False
    snapshot: bool = False
    end: bool = False


class Subscription:
    """Pending changes of one watcher, coalesced per session."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._pending = Changes()
        self._wake = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None  # Wakes for changes that can wait

    async def take(self, timeout: float) -> Changes:
        """Wait at most `timeout` seconds for changes and take them; empty after a timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        changes = self._pending
        self._pending = Changes(end=self._pending.end)
        sessions = sorted(self._sessions.values(), key=lambda session: session.sequence)
        changes.sessions = tuple(sessions)
        self._sessions.clear()
        self._wake.clear()
        if self._later is not None:
            self._later.cancel()
            self._later = None
        return changes

    def note(
        self, session: Session | None = None, *, can_wait: bool = False, **changed: bool
    ) -> None:
        """Add a change; `changed` are fields of `Changes`.

        A change that `can_wait` is taken with the next change, or after GATHER_SECONDS.
        """
        pending = self._pending
        for name in (name for name, value in changed.items() if value):
            setattr(pending, name, True)
        if session is not None:
            self._sessions[session.internal_id] = session
        pending.snapshot |= len(self._sessions) > PILE_LARGEST
        if pending.snapshot:
            self._sessions.clear()  # the snapshot includes them
        if not can_wait:
            self._wake.set()
        elif self._later is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(GATHER_SECONDS, self._wake.set)


class Feed:
    """The watchers and the change counter `sequence` of one run of the agent, `incarnation`."""

    def __init__(self) -> None:
        self.incarnation = str(uuid.uuid4())
        self.sequence = 0
        self._subscriptions: set[Subscription] = set()
        self._ends: set[Callable[[], None]] = set()
        self._changed = asyncio.Event()  # Set by changes, cleared by who waits for the next one

    @property
    def watchers(self) -> int:
        """Number of watchers."""
        return len(self._subscriptions)

    def stamp(self) -> int:
        """Count one change."""
        self.sequence += 1
        self._changed.set()
        return self.sequence

    async def wait_change(self, since: int) -> None:
        """Wait for a change with a sequence after `since`."""
        while self.sequence == since:
            self._changed.clear()
            await self._changed.wait()

    def session_changed(
        self, session: Session, *, host: bool = True, can_wait: bool = False
    ) -> None:
        """Notify the watchers that a session, and perhaps the host, changed."""
        self._note(session, host=host, can_wait=can_wait)

    def host_changed(self, *, can_wait: bool = False) -> None:
        """Notify the watchers that the host changed."""
        self.stamp()
        self._note(host=True, can_wait=can_wait)

    def images_changed(self) -> None:
        """Notify the watchers that the host's images changed."""
        self.stamp()
        self._note(host=True, images=True)

    def request_snapshot(self) -> None:
        """Make all watchers start with a new snapshot."""
        self.stamp()
        self._note(snapshot=True)

    def end(self) -> None:
        """End all streams: the agent is shutting down."""
        self._note(end=True)
        for end in tuple(self._ends):
            end()

    @contextlib.contextmanager
    def ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Register a function, which is called when all streams end."""
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)

    @contextlib.contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Watch. Subscribe before reading the state, so that no change is missed."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def _note(self, session: Session | None = None, **changed: bool) -> None:
        for subscription in self._subscriptions:
            subscription.note(session, **changed)
