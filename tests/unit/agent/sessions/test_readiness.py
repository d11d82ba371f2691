from unittest import mock

import pytest

from agent.domain.containers.engine import container_name
from agent.domain.errors import EngineError
from agent.sessions.readiness import LONGEST_SECONDS, bindings
from tests.support.agent.hosts import Agent, Host, until
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tiltyard.contract import EndReason, State
from tiltyard.ends import PortBindings


@pytest.fixture
def engine(clock: FakeClock) -> FakeEngine:
    made = FakeEngine(clock)
    made.binds_at_once = False
    return made


async def started(agent: Agent, **changes: object) -> str:
    return (await agent.sessions.start(an_id(), a_spec(**changes))).internal_id


async def test_session_is_ready_once_its_ports_are_bound(agent: Agent) -> None:
    internal_id = await started(agent)
    await agent.clock.advance(100)
    session = agent.now(internal_id)
    assert session.state == State.RUNNING
    assert session.ready_time is None
    with agent.runtime.feed.subscribe() as subscription:
        agent.engine.find(container_name(internal_id)).bind()
        bound_time = agent.clock.time()
        await agent.clock.advance(LONGEST_SECONDS)
        [reported] = (await subscription.take(1)).sessions
    assert reported.ready_time is not None
    assert bound_time <= reported.ready_time <= bound_time + LONGEST_SECONDS
    assert reported.sequence > session.sequence
    assert agent.recorded(internal_id).ready_time == reported.ready_time
    assert agent.now(internal_id) == reported


async def test_early_binds_are_noticed_early(agent: Agent) -> None:
    """Within a tenth of the time since the start."""
    for seconds in (0.05, 1.0, 10.0):
        internal_id = await started(agent)
        await agent.clock.advance(seconds)
        agent.engine.find(container_name(internal_id)).bind()
        before = agent.clock.time()
        await agent.clock.advance(LONGEST_SECONDS)
        assert 0 <= await agent.ready(internal_id) - before <= 0.1 * seconds + 0.01


async def test_session_without_ports_is_ready_when_it_runs(agent: Agent) -> None:
    internal_id = await started(agent, ports=())
    assert await agent.ready(internal_id) == agent.now(internal_id).start_time


async def test_session_may_end_or_stop_before_it_is_ready(agent: Agent) -> None:
    ended = await started(agent)
    stopped = await started(agent)
    agent.engine.end(container_name(ended), 3)
    session = (await agent.reached(ended)).session
    assert session.exit_code == 3
    assert session.ready_time is None
    session = await agent.sessions.stop(stopped, EndReason.STOPPED)
    assert session.end_reason == EndReason.STOPPED
    assert session.ready_time is None
    assert agent.nothing_is_held()


async def test_each_run_becomes_ready(agent: Agent) -> None:
    agent.engine.binds_at_once = True
    internal_id = await started(agent, restart=True)
    first = await agent.ready(internal_id)
    agent.engine.binds_at_once = False
    agent.engine.end(container_name(internal_id), 1)
    await agent.clock.advance(30)
    again = agent.now(internal_id)
    assert again.restart_count == 1
    assert again.ready_time is None
    agent.engine.find(container_name(internal_id)).bind()
    await agent.clock.advance(LONGEST_SECONDS)
    assert await agent.ready(internal_id) >= first + 30


async def test_next_agent_watches_unready(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async with host() as agent:
        early = await started(agent)
        late = await started(agent)
        host.engine.find(container_name(early)).bind()
        await host.clock.advance(1)
        since = await agent.ready(early)
        process = agent.now(early).process
    looked = mock.AsyncMock(side_effect=host.engine.has_bound)
    monkeypatch.setattr(host.engine, "has_bound", looked)
    host.clock.jump(50)
    async with host() as agent:
        await until(lambda: looked.called)
        await host.clock.advance(10)
        assert process not in [call.args[0] for call in looked.call_args_list]
        assert agent.now(early).ready_time == since
        assert agent.now(late).ready_time is None
        host.engine.find(container_name(late)).bind()
        await host.clock.advance(LONGEST_SECONDS)
        assert await agent.ready(late) >= since + 50


async def test_failed_checks_are_retried_and_logged_once(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = mock.AsyncMock(side_effect=EngineError("see which ports are bound", "no"))

    with monkeypatch.context() as patch:
        patch.setattr(host.engine, "has_bound", failing)
        async with host() as agent:
            internal_id = await started(agent)
            await host.clock.advance(5)
            assert failing.call_count > 5
            assert caplog.text.count("cannot see which ports are bound") == 1
            patch.undo()
            host.engine.find(container_name(internal_id)).bind()
            await host.clock.advance(LONGEST_SECONDS)
            await agent.ready(internal_id)


async def test_watching_is_cheap_when_nothing_is_ever_bound(host: Host) -> None:
    with mock.patch.object(host.engine, "has_bound", return_value=False) as has_bound:
        async with host() as agent:
            await started(agent)
            await host.clock.advance(60)
            assert has_bound.call_count <= 100
            has_bound.reset_mock()
            await host.clock.advance(60)
            assert has_bound.call_count <= 60 / LONGEST_SECONDS + 1


async def test_slow_checks_are_less_frequent(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session uses at most a tenth of the shared thread."""
    looked = 0

    async def slow(*_: object) -> bool:
        nonlocal looked
        looked += 1
        await host.clock.sleep(0.1)
        return False

    monkeypatch.setattr(host.engine, "has_bound", slow)
    async with host() as agent:
        await started(agent)
        await host.clock.advance(20)
        assert 10 <= looked <= 21


async def test_bindings_name_what_a_session_has_not_bound(agent: Agent) -> None:
    internal_id = await started(agent)
    session = agent.now(internal_id)
    before = await bindings(agent.engine, session)
    assert [port.container for port in before.unbound] == [7777, 7778]
    agent.engine.find(container_name(internal_id)).bind()
    assert await bindings(agent.engine, session) == PortBindings(())
    without = session.with_changes(process=None)
    assert (await bindings(agent.engine, without)).unbound == before.unbound
