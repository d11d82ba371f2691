"""What is told of a session that has ended, however it ended."""

import asyncio
import itertools
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.errors import ImageCannotRunError, SessionLiveError
from agent.domain.history import RUNS_KEPT, Run, Usage, signal_of, with_run
from agent.domain.session import (
    TRANSITIONS,
    Moment,
)
from agent.logs import sealed_report
from agent.logs.sealed_report import SEAL_WAIT_SECONDS, TAIL_BYTES, Tail, read_tail
from agent.sessions.ending import KILL_SECONDS
from agent.state.record import encode_session
from agent.state.report import Report, decode_report, encode_report, report_of
from tests.support.agent.hosts import Agent, an_agent
from tests.support.agent.samples import a_session, a_spec, an_id
from tests.support.fakes import FakeClock, FakeEngine
from tiltyard.contract import EndReason, State


def path_of(agent: Agent, internal_id: str) -> Path:
    return agent.records.directory(internal_id) / "report.json"


async def sealed(agent: Agent, internal_id: str) -> Report:
    """The report that is there once the session has ended for good."""
    life = agent.sessions.life(internal_id)
    await life.wait_for(lambda session: session.log_sealed or session.container_removed)
    return decode_report(path_of(agent, internal_id).read_bytes())


async def read(agent: Agent, internal_id: str) -> tuple[Report, Tail | None]:
    return await sealed_report.read(agent.records, agent.clock, agent.sessions.life(internal_id))


def is_a_path(timeline: tuple[Moment, ...]) -> bool:
    pairs = list(itertools.pairwise(timeline))
    return (
        timeline[0].state is State.CREATED
        and all(after.state in TRANSITIONS[before.state] for before, after in pairs)
        and all(after.time >= before.time for before, after in pairs)
    )


def states(report: Report) -> list[str]:
    return [moment.state.value for moment in report.timeline]


Ending = Callable[[Agent, str], Awaitable[None]]


async def _by_itself(agent: Agent, internal_id: str) -> None:
    agent.engine.end(f"tiltyard-{internal_id}", 139)


async def _out_of_memory(agent: Agent, internal_id: str) -> None:
    agent.engine.end(f"tiltyard-{internal_id}", 137, oom=True)


async def _stopped(agent: Agent, internal_id: str) -> None:
    await agent.sessions.stop(internal_id, EndReason.STOPPED)


async def _drained(agent: Agent, internal_id: str) -> None:
    await agent.sessions.stop(internal_id, EndReason.DRAIN)


async def _given_up(agent: Agent, internal_id: str) -> None:
    await agent.sessions.stop(internal_id, EndReason.HOST_LOST)


async def _due(agent: Agent, _internal_id: str) -> None:
    await agent.clock.advance(61)
    agent.sessions.end_due()


async def _vanished(agent: Agent, internal_id: str) -> None:
    await agent.engine.remove(f"tiltyard-{internal_id}")


ENDINGS: dict[str, tuple[Ending, State, EndReason, int | None, int | None]] = {
    "exited": (_by_itself, State.EXITED, EndReason.EXITED, 139, 11),
    "oom": (_out_of_memory, State.EXITED, EndReason.OOM, 137, 9),
    "stopped": (_stopped, State.EXITED, EndReason.STOPPED, 143, 15),
    "drain": (_drained, State.EXITED, EndReason.DRAIN, 143, 15),
    "host_lost": (_given_up, State.EXITED, EndReason.HOST_LOST, 143, 15),
    "ttl": (_due, State.EXITED, EndReason.TTL, 143, 15),
    "dead": (_vanished, State.DEAD, EndReason.ENGINE_ERROR, None, None),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_every_end_leaves_a_report(agent: Agent, ending: str) -> None:
    end, state, reason, exit_code, signal = ENDINGS[ending]
    session = await agent.sessions.start(an_id(), a_spec(ttl=60))
    await agent.clock.advance(0.5)
    await end(agent, session.internal_id)
    report = await sealed(agent, session.internal_id)
    assert (report.state, report.end_reason) == (state, reason)
    assert (report.exit_code, report.signal) == (exit_code, signal)
    assert report.oom_killed is (ending == "oom")
    assert report.create_time < report.end_time == agent.clock.time()
    assert is_a_path(report.timeline)
    assert report.timeline[-1] == Moment(state, report.end_time)
    told = ["shuttingdown"] if signal == 15 else []
    assert states(report) == ["created", "running", *told, state.value]
    assert report == report_of(agent.sessions.life(session.internal_id).session)
    assert stat.S_IMODE(path_of(agent, session.internal_id).stat().st_mode) == 0o600


async def test_a_reboot_of_the_host_leaves_a_report(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock
) -> None:
    ended, goes_on = an_id(), an_id()
    async with an_agent(tmp_path, engine, clock) as agent:
        await agent.sessions.start(ended, a_spec(ports=()))
        await agent.sessions.start(goes_on, a_spec(ports=(), restart=True))
    for internal_id in (ended, goes_on):
        engine.end(f"tiltyard-{internal_id}", 255)
    clock.reboot()
    async with an_agent(tmp_path, engine, clock) as agent:
        report = await sealed(agent, ended)
        assert (report.end_reason, report.exit_code) == (EndReason.HOST_RESTART, 255)
        assert report.signal is None
        await clock.advance(2)
        await agent.sessions.stop(goes_on, EndReason.STOPPED)
        report = await sealed(agent, goes_on)
        assert [run.exit_code for run in report.failed_runs] == [255]
        assert is_a_path(report.timeline)


async def test_a_restart_that_the_engine_refuses_is_told_with_the_run_before(
    agent: Agent,
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.engine.fail_next("start", ImageCannotRunError("it is told so"))
    agent.engine.end(f"tiltyard-{session.internal_id}", 137, oom=True)
    await agent.sessions.life(session.internal_id).wait_for(
        lambda now: now.state is State.RESTARTING
    )
    await agent.clock.advance(1)
    report = await sealed(agent, session.internal_id)
    assert (report.state, report.end_reason) == (State.DEAD, EndReason.ENGINE_ERROR)
    assert (report.exit_code, report.oom_killed, report.restart_count) == (137, True, 0)
    assert states(report) == ["created", "running", "restarting", "dead"]
    assert "cannot restart" in report.detail


async def test_what_cannot_be_killed_has_its_report_at_once_and_sealed_in_the_end(
    agent: Agent,
) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    name = f"tiltyard-{session.internal_id}"
    agent.engine.ignores_sigterm.add(name)
    agent.engine.survives_sigkill.add(name)
    stop = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    for _ in range(2):
        await agent.clock.advance(KILL_SECONDS)
    await asyncio.gather(stop, return_exceptions=True)
    asked = asyncio.create_task(read(agent, session.internal_id))
    await agent.clock.advance(SEAL_WAIT_SECONDS)
    report, tail = await asked
    assert (report.state, report.end_reason, tail) == (State.DEAD, EndReason.STOPPED, None)
    assert not path_of(agent, session.internal_id).exists()
    agent.engine.survives_sigkill.clear()
    for _ in range(2):
        await agent.clock.advance(KILL_SECONDS)
    assert await sealed(agent, session.internal_id) == report


async def test_restarts_are_told_with_how_each_run_ended(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    name, life = f"tiltyard-{session.internal_id}", agent.sessions.life(session.internal_id)
    runs = []
    for count, (exit_code, oom) in enumerate(((1, False), (137, True), (139, False)), start=1):
        started = agent.clock.time()
        await agent.clock.advance(10)
        agent.engine.end(name, exit_code, oom=oom)
        await life.wait_for(lambda now: now.state is State.RESTARTING)
        runs.append(Run(started, started + 10, exit_code, oom, 2.0 ** (count - 1)))
        await agent.clock.advance(life.session.restart_delay)
        await life.wait_for(lambda now, count=count: now.restart_count == count)  # type: ignore[misc]
    await agent.clock.advance(1)
    agent.engine.end(name, 0)
    report = await sealed(agent, session.internal_id)
    assert report.failed_runs == tuple(runs)
    assert (report.restart_count, report.exit_code, report.oom_killed) == (3, 0, False)
    assert states(report) == ["created", "running", "restarting", "running", "exited"]
    assert report.timeline[2].time == runs[-1].end_time


async def test_what_was_used_is_added_up_over_restarts(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    name, life = f"tiltyard-{session.internal_id}", agent.sessions.life(session.internal_id)
    agent.cgroups.use(session.process, cpu_seconds=2.5, memory_bytes=3000)
    agent.engine.end(name, 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    await agent.clock.advance(1)
    await life.wait_for(lambda now: now.restart_count == 1)
    agent.cgroups.use(life.session.process, cpu_seconds=0.25, memory_bytes=2000)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    report = await sealed(agent, session.internal_id)
    assert report.usage == Usage(2.75, 3000)


@pytest.mark.parametrize(
    ("exit_code", "counted", "reason"),
    [(137, True, "oom"), (137, False, "exited"), (0, True, "exited"), (1, True, "exited")],
)
async def test_the_kernel_knows_of_oom_kills_that_the_engine_missed(
    agent: Agent, exit_code: int, counted: bool, reason: str
) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    if counted:
        agent.cgroups.kill_out_of_memory(session.process)
    agent.engine.end(f"tiltyard-{session.internal_id}", exit_code, oom=False)
    report = await sealed(agent, session.internal_id)
    assert report.end_reason is EndReason(reason)
    assert report.oom_killed is (reason == "oom")


async def test_a_sample_stands_for_a_run_whose_group_is_gone_at_its_end(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.cgroups.use(session.process, cpu_seconds=7, memory_bytes=9)
    sampling = asyncio.create_task(agent.usage.run())
    await agent.clock.advance(5)
    await agent.clock.advance(0)
    agent.cgroups.remove(session.process)
    agent.engine.end(f"tiltyard-{session.internal_id}", 0)
    report = await sealed(agent, session.internal_id)
    assert report.usage == Usage(7, 9)
    sampling.cancel()
    await asyncio.gather(sampling, return_exceptions=True)


async def test_what_a_run_had_used_when_it_was_stopped_outlives_a_kill_of_the_agent(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock
) -> None:
    internal_id = an_id()
    async with an_agent(tmp_path, engine, clock) as agent:
        session = await agent.sessions.start(internal_id, a_spec())
        agent.cgroups.use(session.process, cpu_seconds=3, memory_bytes=4)
        agent.steps.hold("stop.recorded")
        stop = asyncio.create_task(agent.sessions.stop(internal_id, EndReason.STOPPED))
        await agent.steps.reached("stop.recorded")
        agent.cgroups.remove(session.process)
        stop.cancel()
    async with an_agent(tmp_path, engine, clock) as agent:
        assert (await sealed(agent, internal_id)).usage == Usage(3, 4)


async def test_a_process_restarted_by_others_counts_from_zero(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    name, life = f"tiltyard-{session.internal_id}", agent.sessions.life(session.internal_id)
    agent.cgroups.use(session.process, cpu_seconds=1, memory_bytes=10)
    agent.engine.end(name, 0)
    await agent.engine.start(name)
    await life.wait_for(lambda now: now.process not in {None, session.process})
    agent.cgroups.use(life.session.process, cpu_seconds=0.5, memory_bytes=20)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert (await sealed(agent, session.internal_id)).usage == Usage(1.5, 20)


@pytest.mark.parametrize("step", ["end.saved", "log.sealed", "report.sealed"])
async def test_a_kill_around_the_sealing_changes_nothing_of_the_report(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock, step: str
) -> None:
    internal_id = an_id()
    async with an_agent(tmp_path, engine, clock) as agent:
        session = await agent.sessions.start(internal_id, a_spec())
        engine.write_log(f"tiltyard-{internal_id}", b"one\ntwo\n")
        agent.cgroups.use(session.process, cpu_seconds=3, memory_bytes=4)
        agent.steps.hold(step)
        engine.end(f"tiltyard-{internal_id}", 139)
        await agent.steps.reached(step)
        path = path_of(agent, internal_id)
        before = report_of(agent.sessions.life(internal_id).session)
        there = path.stat().st_ino if path.exists() else None
        assert (there is not None) is (step == "report.sealed")
        assert len(await engine.list(agent.runtime.settings.agent_id)) == 1
    await clock.advance(3600)
    async with an_agent(tmp_path, engine, clock) as agent:
        assert await sealed(agent, internal_id) == before
        assert there in {None, path.stat().st_ino}  # what was written is not written again
        assert await read(agent, internal_id) == (before, Tail(b"one\ntwo\n", cut=False))


async def test_a_report_is_kept_as_long_as_the_log(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    engine, internal_id = agent.engine, session.internal_id
    engine.write_log(f"tiltyard-{internal_id}", b"hello\n")
    await agent.sessions.stop(internal_id, EndReason.STOPPED)
    before = await sealed(agent, internal_id)
    await agent.clock.advance(4 * 3600 + 1)
    await agent.pass_over()
    assert await engine.list(agent.runtime.settings.agent_id) == []
    assert await read(agent, internal_id) == (before, Tail(b"hello\n", cut=False))
    await agent.clock.advance(7 * 86400)
    await agent.pass_over()
    assert agent.directories() == []


async def test_a_live_session_has_no_report(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    with pytest.raises(SessionLiveError):
        await read(agent, session.internal_id)


async def test_a_report_right_after_the_end_has_the_log(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.write_log(f"tiltyard-{session.internal_id}", b"bye\n")
    agent.steps.hold("log.copied")
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    asked = asyncio.create_task(read(agent, session.internal_id))
    await agent.steps.reached("log.copied")
    assert not asked.done()
    agent.steps.release("log.copied")
    assert (await asked)[1] == Tail(b"bye\n", cut=False)


async def test_a_log_that_vanished_with_its_container_is_none(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.engine.remove(f"tiltyard-{session.internal_id}")
    await sealed(agent, session.internal_id)
    assert (await read(agent, session.internal_id))[1] is None


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"format": 2}', b'{"format": 1}'])
async def test_a_file_that_cannot_be_read_is_made_up_for_by_the_record(
    agent: Agent, content: bytes | None
) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    before = await sealed(agent, session.internal_id)
    path = path_of(agent, session.internal_id)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert (await read(agent, session.internal_id))[0] == before


async def test_a_full_disk_puts_the_report_off_and_keeps_the_container(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    session = await agent.sessions.start(an_id(), a_spec())
    monkeypatch.setattr(sealed_report, "write", refuse)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    await agent.clock.advance(10)
    life = agent.sessions.life(session.internal_id)
    assert not life.session.log_sealed
    monkeypatch.undo()
    await agent.clock.advance(30)
    assert (await sealed(agent, session.internal_id)).end_reason is EndReason.STOPPED


async def test_a_discarded_session_leaves_no_report(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    assert agent.directories() == []


# What is pure.


@given(st.data())
def test_any_timeline_is_a_short_path_of_the_table(data: st.DataObject) -> None:
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
    runs: tuple[Run, ...] = ()
    for number in range(RUNS_KEPT + 50):
        time = 1_700_000_000.123456 + number * 60
        runs = with_run(runs, Run(time, time + 59.123456, 137, True, 60.0))
    assert len(runs) == RUNS_KEPT
    assert runs[-1].start_time == 1_700_000_000.123456 + (RUNS_KEPT + 49) * 60
    grown = len(encode_session(a_session(failed_runs=runs))) - len(encode_session(a_session()))
    assert grown <= 12 * 1024


@pytest.mark.parametrize(
    ("exit_code", "signal"),
    [(None, None), (0, None), (1, None), (128, None), (129, 1), (137, 9), (192, 64), (193, None)],
)
def test_exit_codes_from_129_tell_a_signal(exit_code: int | None, signal: int | None) -> None:
    assert signal_of(exit_code) == signal


def test_a_session_that_lives_has_nothing_to_report() -> None:
    with pytest.raises(ValueError, match="has not ended"):
        report_of(a_session())


numbers = st.floats(0, 2e9)
codes = st.none() | st.integers(0, 255)
counts = st.none() | st.integers(0, 2**50)
usages = st.builds(Usage, st.none() | numbers, counts, counts)


@given(
    st.builds(
        Report,
        internal_id=st.just(an_id()),
        state=st.sampled_from([State.EXITED, State.DEAD]),
        end_reason=st.sampled_from(EndReason),
        detail=st.text(st.characters(exclude_categories=["Cs"])),
        create_time=numbers,
        end_time=numbers,
        exit_code=codes,
        signal=codes,
        oom_killed=st.booleans(),
        restart_count=st.integers(0),
        failed_runs=st.lists(
            st.builds(Run, st.none() | numbers, numbers, codes, st.booleans(), numbers),
            max_size=3,
        ).map(tuple),
        timeline=st.lists(st.builds(Moment, st.sampled_from(State), numbers)).map(tuple),
        usage=usages,
    )
)
def test_a_report_reads_back_as_it_was_written(report: Report) -> None:
    assert decode_report(encode_report(report)) == report


def test_a_report_of_another_format_is_refused() -> None:
    session = a_session().to(State.EXITED, at=1.0, end_time=1.0, end_reason=EndReason.EXITED)
    written = encode_report(report_of(session))
    assert decode_report(written) == report_of(session)
    with pytest.raises(ValueError, match="format"):
        decode_report(written.replace(b'"format": 1', b'"format": 2'))


@given(usages, usages, usages)
def test_what_was_used_never_falls_and_unknown_adds_nothing(
    one: Usage, two: Usage, three: Usage
) -> None:
    assert one + Usage() == Usage() + one == one | Usage() == one | one == one
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
def test_a_tail_begins_where_a_line_does(tmp_path: Path, log: bytes, kept: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(log)
    tail = read_tail(path)
    assert tail is not None
    assert tail.data == kept
    assert tail.cut is (len(log) > TAIL_BYTES)


def test_no_log_has_no_tail(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "log") is None
