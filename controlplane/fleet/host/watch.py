"""The Watch loop of one host: read its stream, write what it reports, stop what must not live."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random

from controlplane.domain.contract import (
    HostReported,
    HostSession,
    ImagesReported,
    SessionsReported,
    SnapshotBegin,
    SnapshotEnd,
    WatchMessage,
)
from controlplane.domain.errors import (
    AgentExcessError,
    AgentNewerError,
    AgentRefusedError,
    AgentSilentError,
    StoreError,
)
from controlplane.fleet.host.claim_replay import HeldClaims
from controlplane.fleet.host.downtime import HostSilence
from controlplane.fleet.host.drain import HostDrain
from controlplane.fleet.host.stall_aware_clock import listening_timeout
from controlplane.fleet.host.state import FIRST_RETRY, HostState
from controlplane.metrics.agents import FleetMetrics
from controlplane.storage.tables.reports import ReportStore
from controlplane.storage.tables.settling import Verdict
from tiltyard.contract import ErrorReason
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock, unix_ms
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

MESSAGE_TIMEOUT = 6.0
"""Three heartbeats: a stream without messages for longer is reopened on a new connection."""

NEWER_PAUSE = 5.0
"""An agent that is too new to be read stays so until somebody installs another version."""

EXCESS_PAUSE = 60.0
"""An agent that reports more than a host can have does so until somebody looks at the host."""

STOP_TIMEOUT = 60.0
"""Longer than a host's grace period; a stop that takes longer is asked for again."""

MAX_DIAL_BACK_OFF = 0.5
"""With what gRPC takes to connect, a host that is back is heard again within 2 s."""

MAX_STOP_BACK_OFF = 2.0
"""A stop that was asked for meanwhile reaches a host so soon after its return."""

CLAIM_INTERVAL = 10.0
"""Seconds between two looks whether what is nobody's has an account by now."""


class HostWatch:
    """Owns the stream of one host and the stops that it is owed."""

    def __init__(
        self,
        host: HostState,
        reports: ReportStore,
        drain: HostDrain,
        silence: HostSilence,
        claims: HeldClaims,
        *,
        clock: Clock,
        listened: Callable[[], float],
        random: Random,
        changed: Callable[[HostState], None],
        stop: Callable[[str, str], object],
        reach: Reach = no_failpoint,
        metrics: FleetMetrics | None = None,
    ) -> None:
        """Call `changed` whenever the host or its sessions changed in memory.

        `stop` has a session stopped on any host, by its agent and internal id; `listened` tells
        for how many seconds hosts were listened to; `reach` is called at the named steps of
        `failpoints.py`.
        """
        self._host = host
        self._reports = reports
        self._drain = drain
        self._silence = silence
        self._claims = claims
        self._clock = clock
        self._listened = listened
        self._random = random
        self._changed = changed
        self._stop = stop
        self._reach = reach
        self._metrics = metrics or FleetMetrics()
        self._snapshot: set[str] | None = None
        self._snapshot_began = 0.0
        self._stops = TaskOwner[bool]()
        self._waiting: dict[str, HostSession] = {}
        """Sessions of ids whose start is not settled yet: judged again with every message."""
        self._claims_due = 0.0
        self._acked = 0
        self.tried = asyncio.Event()
        """Set once the host has reconciled or could not be reached."""

    async def run(self) -> None:
        """Follow the host for ever, and reconnect whenever the stream breaks."""
        told = ""
        back_off = BackOff(self._clock, self._random, first=FIRST_RETRY, longest=MAX_DIAL_BACK_OFF)
        self._silence.begin()
        try:
            while True:
                heard_at, is_excess = self._host.reported_at, False
                try:
                    await self._follow(back_off)
                except TimeoutError as error:
                    self._metrics.broke(error)
                    why = f"nothing came for {MESSAGE_TIMEOUT:g} s"
                    # The connection may be a dead one, which takes long to show.
                    self._host.client.redial()
                except (AgentRefusedError, AgentSilentError, StoreError) as error:
                    self._metrics.broke(error)
                    why, is_excess = str(error), isinstance(error, AgentExcessError)
                    self._host.is_newer = isinstance(error, AgentNewerError)
                    if self._host.is_newer:
                        self._changed(self._host)
                if why != told or heard_at != self._host.reported_at:
                    level = logging.WARNING if is_excess else logging.INFO
                    log.log(level, "stream broke", agent=self._host.name, error=why)
                told = why
                self.tried.set()
                await self._silence.missed()
                if self._host.is_newer or is_excess:
                    await self._clock.sleep(EXCESS_PAUSE if is_excess else NEWER_PAUSE)
                else:
                    await back_off.wait()
        finally:
            await self._stops.close()
            await self._claims.close()
            await self._drain.close()

    def stop_session(self, internal_id: str) -> "asyncio.Task[bool]":
        """Have a session stopped for certain: asked for again until the host has answered.

        The task's result is False when its process cannot be killed.
        """
        task = self._stops.get(internal_id)
        if task is None:
            name = f"stop {internal_id} on {self._host.name}"
            task = self._stops.start(self._stop_until_gone(internal_id), name, key=internal_id)
        return task

    async def _follow(self, back_off: BackOff) -> None:
        self._snapshot = None
        stream = self._host.client.watch(self._host.incarnation, self._acked)
        try:
            while True:
                async with listening_timeout(MESSAGE_TIMEOUT, self._listened):
                    message = await anext(stream)
                await self._take_in(message)
                back_off.reset()
        finally:
            await stream.aclose()

    async def _take_in(self, message: WatchMessage) -> None:
        if message.incarnation != self._host.incarnation:
            self._acked = 0
        self._host.apply(message, self._listened())
        await self._silence.heard()
        event = message.event
        if isinstance(event, SnapshotBegin):
            self._snapshot, self._snapshot_began = set(), self._clock.monotonic()
        elif isinstance(event, SessionsReported):
            await self._take_in_sessions(event.sessions)
        elif isinstance(event, SnapshotEnd):
            await self._end_snapshot(event)
        elif isinstance(event, HostReported):
            await self._drain.reported(reconnected=self._snapshot is not None)
        if self._snapshot is None:
            if unsettled := self._unsettled():
                await self._settle(unsettled)
            self._acked = message.sequence
        if isinstance(event, SessionsReported | SnapshotEnd | HostReported | ImagesReported):
            self._changed(self._host)

    async def _take_in_sessions(self, sessions: Sequence[HostSession]) -> None:
        if self._snapshot is not None:
            self._snapshot.update(session.internal_id for session in sessions)
            self._host.check_sessions(len(self._snapshot))
        await self._settle(sessions)
        for session in sessions:
            if session.state.ended:
                self._host.forget(session)

    async def _settle(self, sessions: Sequence[HostSession]) -> None:
        name, now_ms = self._host.name, unix_ms(self._clock)
        settled = await self._reports.settle(name, sessions, self._host.under_way, now_ms)
        for session in sessions:
            internal_id = session.internal_id
            verdict = settled.verdicts.get(internal_id)
            self._waiting.pop(internal_id, None)
            if verdict is Verdict.KEEP:  # its account may be known by now
                self._host.unclaimed.discard(internal_id)
            if verdict is Verdict.WAIT:
                self._waiting[internal_id] = session
            elif verdict in {Verdict.STOP, Verdict.STOP_REQUESTED}:
                self.stop_session(internal_id)
            elif verdict is Verdict.CLAIM:
                self._claims.repeat(internal_id)
            elif verdict is Verdict.UNCLAIMED:
                self._leave_alone(internal_id)
        for superseded in settled.superseded:
            self._stop(superseded.agent, superseded.internal_id)

    def _unsettled(self) -> tuple[HostSession, ...]:
        """Give what is to be judged again: what waits, and now and then what is nobody's."""
        now, unclaimed = self._clock.monotonic(), []
        if self._host.unclaimed and now >= self._claims_due:
            self._claims_due = now + CLAIM_INTERVAL
            unclaimed = [self._host.session(each) for each in self._host.unclaimed]
        return (*self._waiting.values(), *(session for session in unclaimed if session))

    def _leave_alone(self, internal_id: str) -> None:
        if not self._host.unclaimed:
            log.warning(
                "no valid ticket or account: nobody's, it is left alone",
                agent=self._host.name,
                session=internal_id,
            )
        self._host.unclaimed.add(internal_id)

    async def _end_snapshot(self, event: SnapshotEnd) -> None:
        present, self._snapshot = self._snapshot or set(), None
        if not event.reconciled:
            return
        name = self._host.name
        expected = await self._reports.live_on(name)
        missing = [i for i in expected if i not in present and self._host.is_gone(i)]
        await self._reports.end_missing(name, missing, unix_ms(self._clock))
        self._host.drop_absent(present)
        self._waiting = {i: s for i, s in self._waiting.items() if i in present}
        for internal_id in await self._reports.to_stop(name):
            self.stop_session(internal_id)
        if not self._host.reconciled:
            log.info("reconciled", agent=name, sessions=len(present))
        self._host.reconciled = True
        self._metrics.snapshot_seconds.observe(self._clock.monotonic() - self._snapshot_began)
        self.tried.set()

    async def _stop_until_gone(self, internal_id: str) -> bool:
        told = ""
        back_off = BackOff(self._clock, self._random, first=FIRST_RETRY, longest=MAX_STOP_BACK_OFF)
        while True:
            try:
                await self._stop_once(internal_id)
            except (AgentRefusedError, AgentSilentError, StoreError) as error:
                if str(error) != told:
                    told = str(error)
                    self._log_failed_stop(internal_id, error)
                if _cannot_kill(error):
                    return False
            else:
                return True
            await back_off.wait()

    async def _stop_once(self, internal_id: str) -> None:
        name = self._host.name
        try:
            discard = not await self._reports.has_row(internal_id)
            answer = await self._host.client.stop_session(
                internal_id, STOP_TIMEOUT, discard=discard
            )
        except AgentRefusedError as error:
            if error.agent_reason is not ErrorReason.SESSION_NOT_FOUND:
                raise
            await self._reports.end_stopped(name, internal_id, unix_ms(self._clock))
            self._host.drop(internal_id)
        else:
            await self._reach("stop.answered")
            now_ms = unix_ms(self._clock)
            await self._reports.settle(name, (answer.session,), (), now_ms)
            await self._reach("stop.written")
            if answer.session.state.ended:
                self._host.forget(answer.session)
        self._changed(self._host)
        await self._reports.mark_stopped(name, internal_id, unix_ms(self._clock))

    def _log_failed_stop(self, internal_id: str, error: Exception) -> None:
        name = self._host.name
        log.warning("cannot stop a session", agent=name, session=internal_id, error=str(error))


def _cannot_kill(error: Exception) -> bool:
    return isinstance(error, AgentRefusedError) and error.agent_reason is ErrorReason.CANNOT_KILL
