"""The Watch loop of one host: reads its stream, stores reports, stops unwanted sessions."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from random import Random

from controlplane.agent_rpc.reports import KnownReports
from controlplane.domain.errors import (
    AgentExcessError,
    AgentNewerError,
    AgentRefusedError,
    AgentUnavailableError,
    StoreError,
)
from controlplane.domain.hosts.contract import (
    HostReport,
    HostSession,
    ImagesReported,
    SessionsReported,
    SnapshotBegin,
    SnapshotEnd,
    WatchMessage,
)
from controlplane.domain.sessions.adoption import Verdict
from controlplane.fleet.host.delivery import FIRST_RETRY
from controlplane.fleet.host.downtime import Downtime
from controlplane.fleet.host.orders import Orders
from controlplane.fleet.host.reports import Reports
from controlplane.fleet.host.state import HostState
from controlplane.fleet.host.stops import ClaimReplay, Stops
from controlplane.fleet.host.written_reports import WrittenReports
from controlplane.metrics.agents import FleetMetrics
from controlplane.storage.engine.store import Store, rest
from controlplane.storage.tables.sessions.session_ends import end_all_missing
from controlplane.storage.tables.sessions.session_queries import live_on
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock, timeout
from tiltyard.runtime.failpoints import Reach
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.stall_aware_clock import listening_timeout
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

MESSAGE_TIMEOUT = 6.0
"""Three heartbeats: a stream without a message for longer gets a new connection."""

PAUSES: dict[type[Exception], float] = {AgentNewerError: 5.0, AgentExcessError: 60.0}
"""Seconds to pause after errors that need an operator."""

MAX_DIAL_BACK_OFF = 0.5
"""Seconds; with the time that gRPC takes to connect, a host reports within 2 s of its return."""

PORTION = 250  # Reported sessions that are written in one transaction
GATHER_SECONDS = 0.02  # Wait for more claims to write together
CLAIM_INTERVAL = 10.0  # Seconds between two evaluations of unclaimed sessions


@dataclass(slots=True)
class Watch:
    """Follows the Watch stream of one host."""

    host: HostState
    store: Store
    reports: Reports
    _: KW_ONLY
    stops: Stops
    orders: Orders
    downtime: Downtime
    written: WrittenReports
    claims: ClaimReplay
    clock: Clock
    listened: Callable[[], float]  # Reads the `ListeningClock`
    was_unresponsive: Callable[[], bool]
    """Returns whether the last report is so old that something may wait for the next one."""
    random: Random
    metrics: FleetMetrics
    reach: Reach
    _snapshot: set[str] | None = field(init=False, default=None)
    _snapshot_began: float = field(init=False, default=0.0)
    _waiting: dict[str, HostSession] = field(init=False, default_factory=dict)
    """Sessions whose start has no outcome yet: evaluated with every message."""
    _answered: set[str] = field(init=False, default_factory=set)
    """Internal ids of claimed sessions that are not written yet."""
    _writing: TaskOwner[None] = field(init=False, default_factory=lambda: TaskOwner(StoreError))
    _is_following: bool = field(init=False, default=False)
    _closing: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _claims_at: float = field(init=False, default=0.0)
    _acked: int = field(init=False, default=0)

    @property
    def is_following(self) -> bool:
        """True from the first message of a stream until it breaks.

        A stop order that is committed at another time is read after the next snapshot.
        """
        return self._is_following

    async def run(self) -> None:
        """Follow the host until cancelled; reconnect whenever the stream breaks."""
        host = self.host
        logged = ""
        back_off = BackOff(self.clock, self.random, first=FIRST_RETRY, longest=MAX_DIAL_BACK_OFF)
        self.downtime.begin()
        while True:
            reported_at = host.reported_at
            pause = 0.0
            try:
                await self._follow(back_off)
            except TimeoutError as error:
                self.metrics.broke(error)
                why = f"no message for {MESSAGE_TIMEOUT:g} s"
                host.client.redial()  # the connection may be dead, which takes long to detect
            except (AgentRefusedError, AgentUnavailableError, StoreError) as error:
                self.metrics.broke(error)
                why = str(error)
                pause = PAUSES.get(type(error), 0.0)
                host.note_format(is_newer=isinstance(error, AgentNewerError))
                if host.is_newer:
                    host.notify()
            except Exception as error:
                self.metrics.broke(error)
                raise
            if why != logged or reported_at != host.reported_at:
                log.log(logging.WARNING if pause else logging.INFO, "stream broke", error=why)
            logged = why
            host.note_tried()
            await self.downtime.missed()
            if pause:
                await self.clock.sleep(pause)
            else:
                await back_off.wait()

    def write_soon(self, internal_id: str) -> None:
        """Write a claimed session as its host reports it, together with others, in a moment."""
        if not self._answered:
            self._writing.start(self._write_answered(), f"claims of {self.host.name}")
        self._answered.add(internal_id)

    async def close(self) -> None:
        """Write the claimed sessions now, and any that is answered later without waiting.

        A revoked host has no next snapshot that could report them.
        """
        self._closing.set()
        await self._writing.wait()

    async def _write_answered(self) -> None:
        with suppress(TimeoutError):
            async with timeout(GATHER_SECONDS, self.clock):
                await self._closing.wait()
        await self.reach("claim.unconfirmed")
        # One that the host dropped meanwhile has ended, and its end is written.
        found = [self.host.session(internal_id) for internal_id in self._answered]
        sessions = [session for session in found if session is not None]
        self._answered.clear()
        try:
            await self._write(sessions)
        except StoreError:
            self._waiting |= {session.internal_id: session for session in sessions}
            raise
        await self.reach("claim.confirmed")

    async def _follow(self, back_off: BackOff) -> None:
        self._snapshot = None
        known = KnownReports(self.host.seen, self.written.up_to)
        stream = self.host.client.watch(self.host.incarnation, self._acked, known)
        try:
            while True:
                async with listening_timeout(MESSAGE_TIMEOUT, self.listened):
                    message = await anext(stream)
                self._is_following = True
                await self._apply(message)
                back_off.reset()
        finally:
            self._is_following = False
            await stream.aclose()

    async def _apply(self, message: WatchMessage) -> None:
        has_returned = self.was_unresponsive()
        if message.incarnation != self.host.incarnation:
            self._acked = 0
        self.host.apply(message, self.listened())
        await self.downtime.reported(self.written.up_to)
        event = message.event
        if isinstance(event, SnapshotBegin):
            self._snapshot = set()
            self._snapshot_began = self.clock.monotonic()
        elif isinstance(event, SessionsReported):
            await self._apply_sessions(event)
        elif isinstance(event, SnapshotEnd):
            await self._end_snapshot(event)
        elif isinstance(event, HostReport):
            await self.orders.drain_reported(reconnected=self._snapshot is not None)
        if self._snapshot is None:
            if pending := self._pending():
                await self._write(pending)
            self._acked = message.sequence
            self.written.note(self._acked, {*self._answered, *self._waiting, *self.host.under_way})
            if isinstance(event, SnapshotEnd):
                await self.downtime.store_report(self.written.up_to)
        has_news = isinstance(event, SessionsReported | SnapshotEnd | HostReport | ImagesReported)
        # A heartbeat has no news, but what waits for the host to answer again can go on.
        if has_news or has_returned:
            self.host.notify()

    async def _apply_sessions(self, event: SessionsReported) -> None:
        sessions: Sequence[HostSession] = event.sessions
        if self._snapshot is not None:
            self._snapshot.update(session.internal_id for session in sessions)
            self._snapshot.update(session.internal_id for session in event.written)
            self.host.check_sessions(len(self._snapshot))
        else:
            sessions = [session for session in sessions if not self._needs_no_write(session)]
        if event.written:
            sessions = [*sessions, *await self.written.read_changed(event.written)]
        await self._write(sessions)

    def _needs_no_write(self, session: HostSession) -> bool:
        """Return whether the row has a report, or will get it with the answer to its claim."""
        is_answered = session.internal_id in self._answered and not session.state.ended
        return is_answered or self.host.is_written(session)

    async def _write(self, sessions: Sequence[HostSession]) -> None:
        """Write reported sessions, a portion at a time."""
        for first in range(0, len(sessions), PORTION):
            portion = sessions[first : first + PORTION]
            began = self.clock.monotonic()
            await self._write_portion(portion)
            if len(portion) == PORTION:
                await rest(self.clock, began)

    async def _write_portion(self, reported: Sequence[HostSession]) -> None:
        """Write the newest known state of sessions: an answer may be newer than the message."""
        name = self.host.name
        now = self.clock.time()
        sessions = [self.host.session(each.internal_id) or each for each in reported]
        verdicts = await self.reports.write(name, sessions, now, self.host.under_way)
        for session in sessions:
            internal_id = session.internal_id
            verdict = verdicts.get(internal_id)
            self._waiting.pop(internal_id, None)
            if verdict is not None:  # it was written: its start was not under way
                self._answered.discard(internal_id)
                if session.state.ended:
                    self.host.forget(session)
            if verdict is Verdict.KEEP:
                self.host.note_claimed(internal_id)
                self.host.note_written(session)
            if self.host.removed:
                continue  # it gets no more calls
            if verdict is Verdict.WAIT:
                self._waiting[internal_id] = session
            elif verdict in {Verdict.STOP, Verdict.STOP_REQUESTED}:
                self.stops.queue_stop(internal_id)
            elif verdict is Verdict.CLAIM:
                self.claims.queue_claim(internal_id)
            elif verdict is Verdict.UNCLAIMED:
                self._note_unclaimed(internal_id)

    def _pending(self) -> tuple[HostSession, ...]:
        """Return the sessions to evaluate again: waiting ones, periodically unclaimed ones."""
        now = self.clock.monotonic()
        unclaimed = []
        if self.host.unclaimed and now >= self._claims_at:
            self._claims_at = now + CLAIM_INTERVAL
            unclaimed = [self.host.session(each) for each in self.host.unclaimed]
        return (*self._waiting.values(), *(session for session in unclaimed if session))

    def _note_unclaimed(self, internal_id: str) -> None:
        if not self.host.unclaimed:
            log.warning("unclaimed session: no valid ticket or account", session=internal_id)
        self.host.note_unclaimed(internal_id)

    async def _end_snapshot(self, event: SnapshotEnd) -> None:
        present = self._snapshot or set()
        self._snapshot = None
        if not event.reconciled:
            return
        name = self.host.name
        expected = await self.store.look(live_on, name)
        missing = [i for i in expected if i not in present and self.host.is_gone(i)]
        for first in range(0, len(missing), PORTION):
            portion = missing[first : first + PORTION]
            await self.store.run(end_all_missing, name, portion, self.clock.time())
        self.host.drop_absent(present)
        self._waiting = {i: s for i, s in self._waiting.items() if i in present}
        await self.stops.queue_pending()
        if not self.host.reconciled:
            log.info("reconciled", sessions=len(present))
        self.host.note_reconciled()
        self.metrics.snapshot_seconds.observe(self.clock.monotonic() - self._snapshot_began)
