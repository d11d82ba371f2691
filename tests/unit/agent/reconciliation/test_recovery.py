"""Restarts of a killed agent: nothing is doubled, nothing lost."""

import pytest

from agent.domain.errors import PortTakenError, SessionNotFoundError
from agent.domain.steps import START_STEPS, STOP_STEPS
from agent.sessions.readiness import LONGEST_SECONDS
from agent.state.tombstones import Tombstones
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import Host, an_agent, until, until_sealed
from tests.support.agent.samples import a_spec, an_id
from tests.support.tasks import let_go
from tiltyard.contract import EndReason, PortRequest, Protocol, State


async def test_running_session_is_adopted_unchanged(host: Host) -> None:
    async with host() as agent:
        before = await agent.sessions.start(an_id(), a_spec(ttl=600.0))
        await agent.ready(before.internal_id)
        before = agent.now(before.internal_id)
        agent_id = agent.runtime.agent_id
    async with host() as agent:
        assert agent.runtime.agent_id == agent_id
        assert agent.now(before.internal_id).with_changes(sequence=before.sequence) == before
        assert agent.reservations.capacity.reserved == before.spec.reservation
        assert before.deadline is not None
        assert agent.runtime.deadlines.next_due() == before.deadline.boottime
        await host.clock.advance(0)
        assert agent.flows_forgotten == []  # of its players
        other = await agent.sessions.start(an_id(), a_spec())
        assert {port.host for port in other.ports}.isdisjoint(port.host for port in before.ports)


@pytest.mark.parametrize("step", START_STEPS)
async def test_agent_killed_during_a_start_leaves_all_or_nothing(host: Host, step: str) -> None:
    internal_id = an_id()
    async with host() as agent:
        starter = await agent.held_at(step, agent.sessions.start(internal_id, a_spec(ttl=60.0)))
        await let_go(starter)
    async with host() as agent:
        assert agent.sessions.reconciled
        found = await host.engine.list(agent.runtime.agent_id)
        if step in {"start.saved", "start.handed"}:
            assert [session.state for session in agent.sessions.started()] == [State.RUNNING]
            [container] = found
            await until(lambda: host.engine.executed == {container.container: 1})
        else:
            await until(lambda: agent.sessions.all() == [])
            assert await host.engine.list(agent.runtime.agent_id) == []
            assert not host.engine.executed
            assert agent.nothing_is_held()
            assert agent.directories() == []
        assert (await agent.sessions.start(internal_id, a_spec(ttl=60.0))).state is State.RUNNING
        [container] = await host.engine.list(agent.runtime.agent_id)
        assert host.engine.executed == {container.container: 1}


@pytest.mark.parametrize("step", STOP_STEPS)
async def test_agent_killed_during_a_stop_completes_it_later(host: Host, step: str) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        host.engine.write_log(session.container, b"last words\n")
        stop = agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        await let_go(await agent.held_at(step, stop))
    async with host() as agent:
        now = (await until_sealed(agent, session.internal_id)).session
        assert now.state == State.EXITED
        assert now.end_reason == EndReason.STOPPED
        assert now.restart_count == 0
        assert agent.records.log_path(session.internal_id).read_bytes() == b"last words\n"
        assert agent.nothing_is_held()


async def test_end_while_the_agent_was_down_is_found(host: Host) -> None:
    async with host() as agent:
        ended = await agent.sessions.start(an_id(), a_spec())
        failed = await agent.sessions.start(an_id(), a_spec(restart=True))
        vanished = await agent.sessions.start(an_id(), a_spec())
    host.engine.end(ended.container, 4)
    host.engine.end(failed.container, 4)
    await host.engine.remove(vanished.container)
    async with host() as agent:
        await agent.reached(failed.internal_id, State.RESTARTING)
        life = await agent.reached(ended.internal_id, State.EXITED)
        assert life.session.exit_code == 4
        life = await agent.reached(vanished.internal_id, State.DEAD)
        assert life.session.end_reason is EndReason.ENGINE_ERROR


@pytest.mark.parametrize("exit_code", [0, 137, 255])
async def test_f45_after_a_reboot_what_asks_for_restarts_starts_again_and_the_rest_has_ended(
    host: Host, exit_code: int
) -> None:
    async with host() as agent:
        restarted = await agent.sessions.start(an_id(), a_spec(restart=True, ttl=600.0))
        ended = await agent.sessions.start(an_id(), a_spec())
        vanished = await agent.sessions.start(an_id(), a_spec())
    for session in (restarted, ended):
        host.engine.end(session.container, exit_code)
    await host.engine.remove(vanished.container)
    await host.clock.advance(60)
    host.clock.reboot()
    async with host() as agent:
        for session, state in ((ended, State.EXITED), (vanished, State.DEAD)):
            life = await agent.reached(session.internal_id, state)
            assert life.session.end_reason is EndReason.HOST_RESTART
        await host.clock.advance(1)
        life = await agent.reached(restarted.internal_id, State.RUNNING)
        assert life.session.restart_count == 1
        assert life.session.ports == restarted.ports
        # Its TTL continues by the wall clock: 61 of 600 seconds are over.
        assert agent.runtime.deadlines.next_due() == pytest.approx(host.clock.boottime() + 539)
    # The reboot is over: another run of the agent finds nothing to do.
    async with host() as agent:
        now = agent.now(restarted.internal_id)
        assert now.state == State.RUNNING
        assert now.restart_count == 1


async def test_run_that_a_reboot_ended_is_a_failed_run_with_its_exit_code(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
    host.engine.end(session.container, 255)
    host.clock.reboot()
    async with host() as agent:
        await host.clock.advance(2)
        life = await agent.reached(session.internal_id, State.RUNNING)
        [run] = life.session.failed_runs
        assert run.exit_code == 255


async def test_f45_after_a_reboot_sessions_of_an_account_start_within_its_share_of_the_slots(
    host: Host,
) -> None:
    async with host() as agent:
        sessions = [await agent.sessions.start(an_id(), a_spec(restart=True)) for _ in range(20)]
    for session in sessions:
        host.engine.end(session.container, 137)
    host.clock.reboot()
    host.engine.calls.clear()
    host.engine.hold("start")
    async with host(start_slots=6) as agent:
        await host.clock.advance(60)
        assert host.engine.count("start") == 3
        host.engine.release("start")
        for session in sessions:
            life = await agent.reached(session.internal_id, State.RUNNING)
            assert life.session.restart_count == 1
        assert host.engine.count("start") == len(sessions)
        await assert_survived(agent)


@pytest.mark.parametrize("restart", [False, True])
async def test_f45_a_container_that_turns_up_after_it_was_given_up_has_its_log_sealed(
    host: Host, restart: bool
) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=restart))
        name = f"tiltyard-{session.internal_id}"
        own = agent.runtime.agent_id
    host.engine.write_log(name, b"the last words\n")
    host.engine.end(name, 255)
    host.clock.reboot()
    find_again = host.engine.mislay(name)  # as by an engine that is still loading its state
    async with host() as agent:
        life = agent.sessions.life(session.internal_id)
        await host.clock.advance(2)
        await life.wait_for(lambda now: now.state is State.DEAD and now.container_removed)
        find_again()
        await agent.pass_over()
        assert life.session.state == State.DEAD
        assert life.session.log_sealed is True
        assert agent.records.log_path(session.internal_id).read_bytes() == b"the last words\n"
        assert len(await host.engine.list(own)) == 1
        find_again = host.engine.mislay(name)
        await agent.pass_over(after=4 * 3600)
        assert life.session.container_removed
        find_again()
        await agent.pass_over()
        assert await host.engine.list(own) == []
        assert life.session.log_sealed
        await assert_survived(agent)


@pytest.mark.parametrize("damage", ["lost", "empty", "no id"])
async def test_f06_a_lost_or_damaged_record_is_rebuilt_from_the_container(
    host: Host, damage: str
) -> None:
    async with host() as agent:
        lost = await agent.sessions.start(an_id(), a_spec(ttl=600.0, env={"KEY": "secret"}))
        ended = await agent.sessions.start(an_id(), a_spec())
        for session in (lost, ended):
            await agent.ready(session.internal_id)
            path = agent.records.directory(session.internal_id) / "record.json"
            match damage:
                case "lost":
                    await agent.lose_record(session.internal_id)
                case "empty":
                    path.write_bytes(b"")
                case _:
                    path.write_bytes(path.read_bytes().replace(b'"internal_id"', b'"x"'))
    host.engine.end(ended.container, 7)
    async with host() as agent:
        life = await agent.reached(lost.internal_id, State.RUNNING)
        assert life.session.ports == lost.ports
        assert life.session.process == lost.process
        assert life.session.spec.identity == lost.spec.identity
        assert life.session.deadline == lost.deadline
        assert (await until_sealed(agent, ended.internal_id)).session.exit_code == 7
        assert len(await host.engine.list(agent.runtime.agent_id)) == 2
        with pytest.raises(PortTakenError):
            pinned = PortRequest(7777, Protocol.UDP, pinned=lost.ports[0].host)
            await agent.sessions.start(an_id(), a_spec(ports=(pinned,)))
    async with host() as agent:
        assert len(agent.sessions.all()) == 2


@pytest.mark.parametrize("copied", ["created", "running"])
async def test_f06_an_older_record_makes_no_second_copy_of_what_runs(
    host: Host, copied: str
) -> None:
    internal_id = an_id()
    copies = {}
    async with host() as agent:
        path = agent.records.directory(internal_id) / "record.json"
        start = agent.sessions.start(internal_id, a_spec(restart=True))
        starter = await agent.held_at("start.recorded", start)
        copies["created"] = path.read_bytes()
        agent.steps.release("start.recorded")
        started = await starter
        copies["running"] = path.read_bytes()
        await agent.fail(started, then=1)
        now_running = (await agent.reached(internal_id, State.RUNNING)).session.process
    path.write_bytes(copies[copied])
    async with host() as agent:
        life = await agent.reached(internal_id, State.RUNNING)
        assert life.session.process == now_running
        assert life.session.ports == started.ports
        assert len(await host.engine.list(agent.runtime.agent_id)) == 1
        assert (await agent.sessions.stop(internal_id, EndReason.STOPPED)).state is State.EXITED
        assert agent.nothing_is_held()


async def test_orphans_are_removed_after_a_grace_period_and_others_stay(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        ours = agent.runtime.agent_id
        await Tombstones(agent.records, host.clock).bury(session.internal_id)
        await agent.lose_record(session.internal_id)
    async with an_agent(host.folder / "stranger", host.engine, host.clock) as stranger:
        other = await stranger.sessions.start(an_id(), a_spec())
        theirs = stranger.runtime.agent_id
    async with host() as agent:
        with pytest.raises(SessionNotFoundError):
            agent.sessions.life(session.internal_id)
        await agent.pass_over(after=59)
        assert len(await host.engine.list(ours)) == 1
        await agent.pass_over(after=2)
        assert await host.engine.list(ours) == []
        [found] = await host.engine.list(theirs)
        assert found.container == other.container


async def test_container_restarted_while_the_agent_was_down_is_a_new_run(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        await agent.ready(session.internal_id)
    host.engine.end(session.container, 0)
    host.engine.binds_at_once = False
    host.engine.start_from_outside(session.container)
    async with host() as agent:
        life = agent.sessions.life(session.internal_id)
        await life.wait_for(lambda now: now.process not in {None, session.process})
        assert life.session.state is State.RUNNING
        assert life.session.ready_time is None
        await until(lambda: host.engine.executed[session.container] == 2)
        host.engine.find(session.container).bind()
        await host.clock.advance(LONGEST_SECONDS)
        await agent.ready(session.internal_id)
