"""Log limits of sessions: find those that print faster than the host allows, and end them.

The files of the engine's logs are readable by root only, and reading all output would cost as much
as copying it. So nothing is read while the engine is idle. While it is busy, the sessions whose
output it relays most are sampled: the newest lines of a log have their times. `domain/log_rate`
decides when a session has exceeded the limits for too long.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from random import uniform

from agent.domain.engine import name_of
from agent.domain.errors import AgentError
from agent.domain.log_rate import TOLERATED_SECONDS, LogExcess, LogRate
from agent.domain.session import Process, Session
from agent.sessions.manager import SessionManager
from agent.sessions.runtime import Runtime
from tiltyard.contract import EndReason, State
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import contained

log = get_logger(__name__)

LOOK_SECONDS = 3.0  # Mean interval between two looks
JITTER = 0.3  # Of the interval, so that a game that prints in bursts is not always seen in one
BUSY_CORES = 0.1
"""Processor use of the engine below which no log is sampled; starts and ends cause it as well."""
SAMPLED = 4  # Logs sampled per look
SAMPLE_PIECES = 1000  # Newest lines, or parts of 16 KiB of long ones, of a sample
SAMPLE_SECONDS = 5.0  # Longest time to read a sample
_SHORTEST_SECONDS = 0.001  # Shortest time in which a sample counts as printed
_WARNING = "session {} prints more than session_log_lines or session_log_bytes allow"
_WARNED = 5  # Sessions named in warnings


class LogLimits:
    """Samples logs while the engine is busy; ends sessions that exceed the limits for long."""

    def __init__(self, runtime: Runtime, sessions: SessionManager) -> None:
        self._runtime = runtime
        self._sessions = sessions
        settings = runtime.settings
        self._limits = LogRate(settings.session_log_lines, settings.session_log_bytes)
        self._excess = LogExcess()
        self._looked_at = 0.0
        self._total: float | None = None
        self._relays: Mapping[Process, float] = {}
        self.warnings: tuple[str, ...] = ()
        """Warnings for the host's report, as of the last look."""

    async def run(self) -> None:
        """Look until cancelled; return at once without limits."""
        while any(self._limits):
            await self._runtime.clock.sleep(LOOK_SECONDS * uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - no secret
            try:
                await self.look()
            except AgentError as error:
                log.debug("cannot look at logs", error=str(error))

    async def look(self) -> None:
        """Find the sessions that exceed the limits now; end those that do for too long."""
        now = self._runtime.clock.monotonic()
        passed = now - self._looked_at
        self._looked_at = now
        running: dict[Process, Session] = {}
        if await self._is_busy(passed):
            running = {
                session.process: session
                for session in self._sessions.each()
                if session.state is State.RUNNING and session.process is not None
            }
        sampled = {
            session.internal_id: await self._exceeds(session)
            for session in await self._busiest(running)
        }
        before = set(self._excess.sessions)
        unknown = {session.internal_id for session in running.values()} - sampled.keys()
        for internal_id in self._excess.update(sampled, passed, unknown=unknown):
            life = self._sessions.find(internal_id)
            if life is not None and not life.session.state.ended:
                self._sessions.end(life, EndReason.LOG)
        self._report(before)

    def _report(self, before: Collection[str]) -> None:
        """Report the sessions that exceed the limits, if they are others than before."""
        now = set(self._excess.sessions)
        for internal_id in now.difference(before):
            session = self._sessions.life(internal_id).session
            log.warning("log limit exceeded", **_named(session), seconds=TOLERATED_SECONDS)
            self._runtime.metrics.log_excesses.inc()
        if now != before:
            self.warnings = tuple(_WARNING.format(each) for each in sorted(now)[:_WARNED])
            self._runtime.feed.host_changed()

    async def _is_busy(self, passed: float) -> bool:
        """Whether the engine has used more than BUSY_CORES since the last look."""
        before = self._total
        self._total = (await self._runtime.engine.read_load(())).total
        if before is None or self._total is None:
            return False
        return self._total - before >= BUSY_CORES * passed

    async def _busiest(self, running: Mapping[Process, Session]) -> list[Session]:
        """The sessions whose output the engine relayed most since the last look."""
        runtime = self._runtime
        before = self._relays
        if not running:
            self._relays = {}
            return []
        self._relays = (await runtime.engine.read_load(tuple(running))).relays
        grown = {
            process: seconds - before[process]
            for process, seconds in self._relays.items()
            if process in before and seconds > before[process]
        }
        busiest = sorted(grown, key=grown.__getitem__, reverse=True)
        return [running[process] for process in busiest[:SAMPLED]]

    async def _exceeds(self, session: Session) -> bool:
        with contained("cannot sample a log: internal error", session=session.internal_id):
            try:
                rate = await self._rate(session)
            except AgentError as error:  # its task handles a container that is gone
                log.debug("cannot sample a log", session=session.internal_id, error=str(error))
                return False
            return rate.exceeds(self._limits)
        return False

    async def _rate(self, session: Session) -> LogRate:
        """The mean rate since the first of the newest lines; 0 for a shorter log."""
        runtime = self._runtime
        count = 0
        size = 0
        begin = b""
        now = runtime.clock.time()
        sample = runtime.engine.logs(name_of(session), tail=SAMPLE_PIECES, longest=SAMPLE_SECONDS)
        async with sample as answer:
            async for pieces in answer:
                begin = begin or pieces[0].time
                count += len(pieces)
                size += sum(piece.size for piece in pieces)
        if count < SAMPLE_PIECES:
            return LogRate(0, 0)
        since = datetime.fromisoformat(begin.decode("ascii")).timestamp()
        seconds = max(now - since, _SHORTEST_SECONDS)
        return LogRate(count / seconds, size / seconds)


def _named(session: Session) -> dict[str, str]:
    identity = session.spec.identity
    return {
        "session": session.internal_id,
        "id": identity.session_id,
        "account": identity.account,
        "application": identity.application,
    }
