"""Log limits: find sessions and accounts that print faster than the host allows, and end them.

The files of the engine's logs are readable by root only, and reading all output would cost as much
as copying it. So nothing is read while the engine is idle. While it is busy, the sessions whose
output it relays most are sampled: the newest lines of a log have their times. `domain/log_rate`
decides when a session has exceeded the limits for too long.

An account may have many sessions that each stay within them. So a few sessions of the account
whose output is relayed most are sampled as well, at random: the sum of all is estimated from them.
While it exceeds the share of the account for too long, the busiest of them ends, one at each look.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from random import sample, uniform

from agent.domain.containers.engine import name_of
from agent.domain.errors import AgentError
from agent.domain.sessions.log_rate import TOLERATED_SECONDS, LogExcess, LogRate, LogShares
from agent.domain.sessions.session import Process, Session
from agent.sessions.manager import SessionManager
from agent.sessions.runtime import Runtime
from tiltyard.contract import EndReason, State
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import contained

log = get_logger(__name__)

LOOK_SECONDS = 3.0  # Mean interval between two looks
COUNTED_SECONDS = 2 * LOOK_SECONDS
"""Longest time that one sample stands for: a look may be late, and then proves nothing of the
seconds before it."""
JITTER = 0.3  # Of the interval, so that a game that prints in bursts is not always seen in one
BUSY_CORES = 0.1
"""Processor use of the engine below which no log is sampled; starts and ends cause it as well."""
SAMPLED = 4  # Logs sampled per look: of the busiest sessions, and of any of the busiest account
SAMPLE_PIECES = 1000  # Newest lines, or parts of 16 KiB of long ones, of a sample
SAMPLE_SECONDS = 5.0  # Longest time to read a sample
_SHORTEST_SECONDS = 0.001  # Shortest time in which a sample counts as printed
_WARNING = "session {} prints more than session_log_lines or session_log_bytes allow"
_SHARE_WARNING = (
    "the sessions of account {} print more than its share of host_log_lines or host_log_bytes"
)
_WARNED = 5  # Sessions, and accounts, named in warnings
_NOTHING = LogRate(0, 0)  # The rate of a log that is shorter than a sample


class LogLimits:
    """Samples logs while the engine is busy; ends sessions beyond the limits for long."""

    def __init__(self, runtime: Runtime, sessions: SessionManager) -> None:
        self._runtime = runtime
        self._sessions = sessions
        settings = runtime.settings
        self._limits = LogRate(settings.session_log_lines, settings.session_log_bytes)
        self._shares = LogShares(LogRate(settings.host_log_lines, settings.host_log_bytes))
        self._excess = LogExcess()
        self._account_excess = LogExcess()
        self._looked_at = 0.0
        self._total: float | None = None
        self._relays: Mapping[Process, float] = {}
        self.warnings: tuple[str, ...] = ()
        """Warnings for the host's report, as of the last look."""

    async def run(self) -> None:
        """Look until cancelled; return at once without limits."""
        while any((*self._limits, *self._shares.limits)):
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
        relayed = await self._relayed(running)
        busiest = sorted(relayed, key=relayed.__getitem__, reverse=True)[:SAMPLED]
        sessions = [running[process] for process in busiest]
        of_account = _of_busiest_account(relayed, running)
        picked = sample(of_account, min(SAMPLED, len(of_account)))
        rates = await self._rates({each.internal_id: each for each in (*sessions, *picked)})
        sessions_before = set(self._excess.names)
        accounts_before = set(self._account_excess.names)
        counted = min(passed, COUNTED_SECONDS)
        self._end_sessions(rates, running.values(), counted)
        of_picked = {each.internal_id: rates.get(each.internal_id) for each in picked}
        self._end_busiest(of_picked, of_account, running.values(), counted)
        self._report(sessions_before, accounts_before, running.values())

    def _end_sessions(
        self, rates: Mapping[str, LogRate], running: Collection[Session], passed: float
    ) -> None:
        """End the sessions that have exceeded the limits of a session for too long."""
        sampled = {each: rate.exceeds(self._limits) for each, rate in rates.items()}
        unknown = {session.internal_id for session in running} - sampled.keys()
        for internal_id in self._excess.update(sampled, passed, unknown=unknown):
            self._end(internal_id)

    def _end_busiest(
        self,
        found: Mapping[str, LogRate | None],
        of_account: Sequence[Session],
        running: Collection[Session],
        passed: float,
    ) -> None:
        """End the busiest of some sessions of an account beyond its share for too long.

        Of those `found`, the unknown ones count as silent beside the others: with a clock that was
        set back, the sessions that print little are unknown for longest.
        """
        sampled = {}
        known = {each: rate for each, rate in found.items() if rate is not None}
        rates = dict.fromkeys(found, _NOTHING) | known
        if known:
            account = _account_of(of_account[0])
            sampled[account] = self._shares.exceeds(
                account, list(rates.values()), len(of_account), now=self._looked_at
            )
        unknown = {_account_of(session) for session in running} - sampled.keys()
        due = self._account_excess.update(sampled, passed, unknown=unknown)
        if any(sampled.get(account) for account in due):
            limits = self._shares.limits
            self._end(max(rates, key=lambda each: rates[each].part_of(limits)))

    def _end(self, internal_id: str) -> None:
        life = self._sessions.find(internal_id)
        if life is not None and not life.session.state.ended:
            self._sessions.end(life, EndReason.LOG)

    def _report(
        self,
        sessions_before: AbstractSet[str],
        accounts_before: AbstractSet[str],
        running: Collection[Session],
    ) -> None:
        """Report the sessions and accounts that exceed limits, if they are others than before."""
        sessions = sorted(self._excess.names)
        accounts = sorted(self._account_excess.names)
        for internal_id in self._excess.names - sessions_before:
            self._runtime.metrics.log_excesses.labels("session").inc()
            life = self._sessions.find(internal_id)  # None if it was removed during the samples
            if life is not None:
                named = _named(life.session)
                log.warning("log limit exceeded", **named, seconds=TOLERATED_SECONDS)
        for account in self._account_excess.names - accounts_before:
            count = sum(_account_of(session) == account for session in running)
            log.warning("log share exceeded", account=account, sessions=count)
            self._runtime.metrics.log_excesses.labels("account").inc()
        if set(sessions) != sessions_before or set(accounts) != accounts_before:
            self.warnings = (
                *(_WARNING.format(each) for each in sessions[:_WARNED]),
                *(_SHARE_WARNING.format(each) for each in accounts[:_WARNED]),
            )
            self._runtime.feed.host_changed()

    async def _is_busy(self, passed: float) -> bool:
        """Whether the engine has used more than BUSY_CORES since the last look."""
        before = self._total
        self._total = (await self._runtime.engine.read_load(())).total
        if before is None or self._total is None:
            return False
        return self._total - before >= BUSY_CORES * passed

    async def _relayed(self, running: Mapping[Process, Session]) -> dict[Process, float]:
        """The seconds for which the engine relayed output of sessions since the last look."""
        before = self._relays
        self._relays = {}
        if running:
            self._relays = (await self._runtime.engine.read_load(tuple(running))).relays
        return {
            process: seconds - before[process]
            for process, seconds in self._relays.items()
            if process in before and seconds > before[process]
        }

    async def _rates(self, sessions: Mapping[str, Session]) -> dict[str, LogRate]:
        """The rates of sessions, by internal id, without those that are unknown."""
        rates = {}
        for internal_id, session in sessions.items():
            rate = await self._rate_of(session)
            if rate is not None:
                rates[internal_id] = rate
        return rates

    async def _rate_of(self, session: Session) -> LogRate | None:
        """The rate of a session; None if it cannot be sampled."""
        with contained("cannot sample a log: internal error", session=session.internal_id):
            try:
                return await self._rate(session)
            except AgentError as error:  # its task handles a container that is gone
                log.debug("cannot sample a log", session=session.internal_id, error=str(error))
        return None

    async def _rate(self, session: Session) -> LogRate | None:
        """The mean rate since the first of the newest lines; 0 for a shorter log.

        Return None if the times of the lines say nothing: the clock was set back since then.
        """
        runtime = self._runtime
        size = 0
        times: list[bytes] = []
        before = runtime.clock.time()
        sample = runtime.engine.logs(name_of(session), tail=SAMPLE_PIECES, longest=SAMPLE_SECONDS)
        async with sample as answer:
            async for pieces in answer:
                times += [piece.time for piece in pieces]
                size += sum(piece.size for piece in pieces)
        if len(times) < SAMPLE_PIECES:
            return _NOTHING
        first = _seconds(min(times))
        last = _seconds(max(times))
        if last > runtime.clock.time():
            return None
        seconds = max(before - first, last - first, _SHORTEST_SECONDS)
        return LogRate(len(times) / seconds, size / seconds)


def _seconds(time: bytes) -> float:
    """The time of a line, by the wall clock."""
    return datetime.fromisoformat(time.decode("ascii")).timestamp()


def _account_of(session: Session) -> str:
    return session.spec.identity.account


def _of_busiest_account(
    relayed: Mapping[Process, float], running: Mapping[Process, Session]
) -> list[Session]:
    """The sessions of the account whose output was relayed most; none if there was no output."""
    sums: dict[str, float] = {}
    for process, seconds in relayed.items():
        account = _account_of(running[process])
        sums[account] = sums.get(account, 0.0) + seconds
    busiest = max(sums, key=sums.__getitem__, default="")
    return [session for session in running.values() if sums and _account_of(session) == busiest]


def _named(session: Session) -> dict[str, str]:
    identity = session.spec.identity
    return {
        "session": session.internal_id,
        "id": identity.session_id,
        "account": identity.account,
        "application": identity.application,
    }
