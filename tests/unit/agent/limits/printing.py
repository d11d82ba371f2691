"""Sessions that print, on a fake engine that relays their output."""

from collections.abc import Sequence
from dataclasses import replace

from agent.domain.sessions.log_rate import TOLERATED_SECONDS
from agent.domain.sessions.session import Session
from agent.limits.log_limits import LOOK_SECONDS, LogLimits
from tests.support.agent.hosts import Agent
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle

STEP = 0.5  # Seconds
LINES = 20  # Limits of these tests, per second
BYTES = 4_000
LOOKS = round(TOLERATED_SECONDS / LOOK_SECONDS)


def limits_of(
    agent: Agent, *, lines: int = LINES, size: int = BYTES, host_lines: int = 0
) -> LogLimits:
    changes = {
        "session_log_lines": lines,
        "session_log_bytes": size,
        "host_log_lines": host_lines,
        "host_log_bytes": 0,
    }
    settings = agent.runtime.settings.model_copy(update=changes)
    return LogLimits(replace(agent.runtime, settings=settings), agent.sessions)


async def started(agent: Agent, account: str = "acme") -> Session:
    spec = a_spec(restart=True)
    spec = replace(spec, identity=replace(spec.identity, account=account))
    return await agent.sessions.start(an_id(), spec)


async def printed(
    limits: LogLimits, agent: Agent, *sessions: Session, seconds: float, lines: int = 2 * LINES
) -> None:
    """Let sessions print this many lines a second, with a look every LOOK_SECONDS.

    The engine is busy with that.
    """
    for _ in range(round(seconds / LOOK_SECONDS)):
        await written(limits, agent, *sessions, data=b"\n" * round(lines * STEP))


async def written(limits: LogLimits, agent: Agent, *sessions: Session, data: bytes) -> None:
    """Let sessions print `data` in each STEP until the next look."""
    for _ in range(round(LOOK_SECONDS / STEP)):
        for session in sessions:
            agent.engine.write_log(session.container, data)
        relay(agent, *sessions)
        agent.clock.stall(STEP)
    await limits.look()
    await until_idle()


def relay(agent: Agent, *sessions: Session, seconds: float = STEP) -> None:
    """Let the engine use a core meanwhile, mostly for these sessions."""
    agent.engine.cpu_seconds = (agent.engine.cpu_seconds or 0.0) + seconds
    for held in agent.engine.all:
        is_loud = held.id in {each.container for each in sessions}
        held.relay_seconds += seconds if is_loud else seconds / 10


def samples(agent: Agent) -> list[str]:
    """The containers whose logs were sampled."""
    return [subject for call, subject in agent.engine.calls if call == "logs"]


def live(agent: Agent, sessions: Sequence[Session]) -> int:
    return sum(not agent.now(each.internal_id).state.ended for each in sessions)
