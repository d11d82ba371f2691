import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.errors import SessionLiveError
from agent.domain.sessions.history import RUNS_KEPT, Usage, signal_of, with_run
from agent.domain.sessions.session import TRANSITIONS, Session
from agent.logs import report
from agent.logs.report import SEAL_WAIT_SECONDS, TAIL_BYTES, Tail, read_tail
from agent.state.encoding import SESSIONS
from tests.support.agent.hosts import Agent, Host
from tests.support.agent.samples import a_session, a_spec, an_id
from tests.support.tasks import running
from tiltyard.contract import EndReason, State
from tiltyard.ends import FailedRun, Limit, Moment


async def sealed(agent: Agent, internal_id: str) -> Session:
    """The session once it has ended and its log is sealed, or gone."""
    life = agent.sessions.life(internal_id)
    await life.wait_for(lambda session: session.log_sealed or session.container_removed)
    return life.session


async def read(agent: Agent, internal_id: str) -> tuple[Session, Tail | None]:
    return await report.read(agent.records, agent.clock, agent.sessions.life(internal_id))


def is_a_path(timeline: tuple[Moment, ...]) -> bool:
    pairs = list(itertools.pairwise(timeline))
    return (
        timeline[0].state is State.CREATED
        and all(after.state in TRANSITIONS[before.state] for before, after in pairs)
        and all(after.time >= before.time for before, after in pairs)
    )


def states(session: Session) -> list[str]:
    return [moment.state.value for moment in session.timeline]


@pytest.mark.parametrize(
    ("reason", "state", "exit_code"),
    [
        (EndReason.EXITED, State.EXITED, 139),
        (EndReason.OOM, State.EXITED, 137),
        (EndReason.STOPPED, State.EXITED, 143),
        (EndReason.TTL, State.EXITED, 143),
        (EndReason.ENGINE_ERROR, State.DEAD, None),
    ],
)
async def test_each_end_is_reported(
    agent: Agent, reason: EndReason, state: State, exit_code: int | None
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(ttl=60))
    await agent.clock.advance(0.5)
    match reason:
        case EndReason.STOPPED:
            await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        case EndReason.TTL:
            await agent.clock.advance(61)
            agent.sessions.end_due()
        case EndReason.ENGINE_ERROR:
            await agent.engine.remove(session.container)
        case _:
            agent.engine.end(session.container, exit_code or 0, oom=reason is EndReason.OOM)
    found = await sealed(agent, session.internal_id)
    assert found.state == state
    assert found.end_reason == reason
    assert found.exit_code == exit_code
    assert found.oom_killed is (reason is EndReason.OOM)
    assert found.end_time == agent.clock.time()
    assert found.end_time > found.create_time
    assert is_a_path(found.timeline)
    assert found.timeline[-1] == Moment(state, found.end_time)
    stopping = ["shuttingdown"] if exit_code == 143 else []
    assert states(found) == ["created", "running", *stopping, state.value]
    assert agent.nothing_is_held()


async def test_failed_runs_are_reported(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    name = f"tiltyard-{session.internal_id}"
    life = agent.sessions.life(session.internal_id)
    runs = []
    for count, (exit_code, oom) in enumerate(((1, False), (137, True), (139, False)), start=1):
        started = agent.clock.time()
        await agent.clock.advance(10)
        agent.engine.end(name, exit_code, oom=oom)
        await life.wait_for(lambda now: now.state is State.RESTARTING)
        runs.append(FailedRun(started, started + 10, exit_code, oom, 2.0 ** (count - 1)))
        await agent.clock.advance(life.session.restart_delay)
        await life.wait_for(lambda now, count=count: now.restart_count == count)  # type: ignore[misc]
    assert life.session.ports == session.ports
    await agent.clock.advance(1)
    agent.engine.end(name, 0)
    found = await sealed(agent, session.internal_id)
    assert found.failed_runs == tuple(runs)
    assert found.restart_count == 3
    assert found.exit_code == 0
    assert found.oom_killed is False
    assert states(found) == ["created", "running", "restarting", "running", "exited"]
    assert found.timeline[2].time == runs[-1].end_time


async def test_usage_is_the_sum_of_all_runs(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.cgroups.use(session.process, cpu_seconds=2.5, memory_bytes=3000)
    await agent.fail(session, then=1)
    life = await agent.reached(session.internal_id, State.RUNNING)
    agent.cgroups.use(life.session.process, cpu_seconds=0.25, memory_bytes=2000)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    found = await sealed(agent, session.internal_id)
    assert found.earlier_usage + found.run_usage == Usage(2.75, 3000)


async def test_usage_includes_the_run_before_an_external_restart(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.cgroups.use(session.process, cpu_seconds=1, memory_bytes=10)
    agent.engine.end(session.container, 0)
    agent.engine.start_from_outside(session.container)
    life = agent.sessions.life(session.internal_id)
    await life.wait_for(lambda now: now.process not in {None, session.process})
    agent.cgroups.use(life.session.process, cpu_seconds=0.5, memory_bytes=20)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    found = await sealed(agent, session.internal_id)
    assert found.earlier_usage + found.run_usage == Usage(1.5, 20)


@pytest.mark.parametrize(
    ("exit_code", "counted", "reason"),
    [
        (137, True, "oom"),
        (137, False, "exited"),
        (0, True, "exited"),
        (1, True, "oom"),
    ],
)
async def test_kernel_reports_oom_kills_that_the_engine_missed(
    agent: Agent, exit_code: int, counted: bool, reason: str
) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    if counted:
        agent.cgroups.kill_out_of_memory(session.process)
    agent.engine.end(session.container, exit_code, oom=False)
    found = await sealed(agent, session.internal_id)
    assert found.end_reason is EndReason(reason)
    assert found.oom_killed is counted
    assert found.exit_code == exit_code


async def test_usage_without_a_cgroup_is_the_last_sample(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.cgroups.use(session.process, cpu_seconds=7, memory_bytes=9)
    async with running(agent.usage.run()):
        await agent.clock.advance(5)
        await agent.clock.advance(0)
        agent.cgroups.remove(session.process)
        agent.engine.end(session.container, 0)
        assert (await sealed(agent, session.internal_id)).run_usage == Usage(7, 9)


async def test_usage_at_a_stop_survives_a_kill_of_the_agent(host: Host) -> None:
    internal_id = an_id()
    async with host() as agent:
        session = await agent.sessions.start(internal_id, a_spec())
        agent.cgroups.use(session.process, cpu_seconds=3, memory_bytes=4)
        stopping = agent.sessions.stop(internal_id, EndReason.STOPPED)
        stop = await agent.held_at("stop.recorded", stopping)
        agent.cgroups.remove(session.process)
        stop.cancel()
    async with host() as agent:
        assert (await sealed(agent, internal_id)).run_usage == Usage(3, 4)


async def test_report_waits_for_the_log_to_be_sealed(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.write_log(session.container, b"bye\n")
    agent.steps.hold("log.copied")
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    late = asyncio.create_task(read(agent, session.internal_id))
    await agent.steps.reached("log.copied")
    await agent.clock.advance(SEAL_WAIT_SECONDS)
    assert (await late)[1] is None
    in_time = asyncio.create_task(read(agent, session.internal_id))
    agent.steps.release("log.copied")
    assert (await in_time)[1] == Tail(b"bye\n", cut=False)


async def test_rejects_report_of_a_live_session(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    with pytest.raises(SessionLiveError):
        await read(agent, session.internal_id)


async def test_report_of_a_vanished_container_has_no_log(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.engine.remove(session.container)
    found = await sealed(agent, session.internal_id)
    assert not found.log_sealed
    assert await read(agent, session.internal_id) == (found, None)


# Pure functions.


@given(st.data())
def test_timeline_is_a_short_path_of_the_transition_table(data: st.DataObject) -> None:
    session = a_session(create_time=0.0)
    first_run = None
    for _ in range(data.draw(st.integers(1, 30))):
        allowed = sorted(TRANSITIONS[session.state], key=lambda state: state.value)
        if not allowed:
            break
        state = data.draw(st.sampled_from(allowed))
        session = session.to(state, at=data.draw(st.floats(-10, 10)))
        assert is_a_path(session.timeline)
        assert session.timeline[-1].state is session.state
        assert len(session.timeline) <= 6
        if len(session.timeline) == 2:
            first_run = session.timeline[1]
        assert session.timeline[1] == first_run


def test_only_the_newest_failed_runs_are_kept_and_the_record_stays_small() -> None:
    runs: tuple[FailedRun, ...] = ()
    for number in range(RUNS_KEPT + 50):
        time = 1_700_000_000.123456 + number * 60
        runs = with_run(runs, FailedRun(time, time + 59.123456, 137, True, 60.0, tuple(Limit)))
    assert len(runs) == RUNS_KEPT
    assert runs[-1].start_time == 1_700_000_000.123456 + (RUNS_KEPT + 49) * 60
    without = SESSIONS.dump_json(a_session())
    grown = SESSIONS.dump_json(a_session(failed_runs=runs))
    assert len(grown) - len(without) <= 16 * 1024


@pytest.mark.parametrize(
    ("exit_code", "signal"),
    [
        (None, None),
        (0, None),
        (1, None),
        (128, None),
        (129, 1),
        (137, 9),
        (192, 64),
        (193, None),
    ],
)
def test_exit_codes_from_129_name_a_signal(exit_code: int | None, signal: int | None) -> None:
    assert signal_of(exit_code) == signal


counts = st.none() | st.integers(0, 2**50)
usages = st.builds(Usage, st.none() | st.floats(0, 2e9), counts, counts)


@given(usages, usages, usages)
def test_usage_never_falls_and_unknown_adds_nothing(one: Usage, two: Usage, three: Usage) -> None:
    assert one + Usage() == one
    assert Usage() + one == one
    assert one | Usage() == one
    assert one | one == one
    assert one | two == two | one
    for known in (one + two, one | two):
        assert (known.cpu_seconds or 0) >= (one.cpu_seconds or 0)
        assert (known.peak_memory_bytes or 0) >= (two.peak_memory_bytes or 0)
    assert (one + two + three).peak_memory_bytes == (one | two | three).peak_memory_bytes


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (b"", b""),
        (b"a" * TAIL_BYTES, b"a" * TAIL_BYTES),
        (b"gone\n" + b"a" * (TAIL_BYTES - 1) + b"\n", b"a" * (TAIL_BYTES - 1) + b"\n"),
        (b"x\ny\n" + b"a" * (TAIL_BYTES - 2) + b"\n", b"a" * (TAIL_BYTES - 2) + b"\n"),
        (b"half" + b"a" * TAIL_BYTES + b"\nlast\n", b"last\n"),
        (b"b" * (TAIL_BYTES + 9), b"b" * TAIL_BYTES),
        (b"b" * (TAIL_BYTES + 9) + b"\n", b"b" * (TAIL_BYTES - 1) + b"\n"),
    ],
)
def test_tail_begins_at_the_start_of_a_line(tmp_path: Path, log: bytes, kept: bytes) -> None:
    path = tmp_path / "log"
    assert read_tail(path) is None
    path.write_bytes(log)
    assert read_tail(path) == Tail(kept, cut=len(log) > TAIL_BYTES)
