"""Reconciliation after external changes of containers, lost events and hanging calls."""

import contextlib
import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agent.domain import errors
from agent.domain.sessions.session import Session
from agent.domain.steps import REMOVAL_STEPS, RESTART_STEPS
from agent.reconciliation.reconciler import Reconciler
from agent.state.record import Records
from agent.state.tombstones import Tombstones
from tests.support.agent.hosts import INIT, Agent, Host, until, until_sealed
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.tasks import let_go, running
from tiltyard.contract import EndReason, State

WEEK = 7 * 86400
FULL = mock.AsyncMock(side_effect=errors.DiskFullError("/state", "No space left on device"))


def _looked_after(agent: Agent) -> contextlib.AbstractAsyncContextManager[None]:
    """Run the reconciler in the background, as the daemon does."""
    return running(agent.reconciler.run(), agent.reconciler.listen())


async def _runs(agent: Agent, session: Session) -> bool:
    found = await agent.engine.list(agent.runtime.agent_id)
    return any(
        container.container == session.container and container.process for container in found
    )


async def test_f46_an_ended_session_that_somebody_starts_again_is_killed_at_once(
    agent: Agent,
) -> None:
    session = await agent.ended()
    async with _looked_after(agent):
        await until(lambda: ("events", "") in agent.engine.calls)
        agent.engine.start_from_outside(session.container)
        await agent.clock.advance(1)  # less than the ten seconds between two passes
        await until(lambda: ("kill", session.container) in agent.engine.calls)
        await until_idle()
    assert not await _runs(agent, session)
    assert agent.now(session.internal_id) == session
    assert agent.nothing_is_held()


async def test_f12_what_no_event_tells_of_is_found_by_the_next_pass(agent: Agent) -> None:
    session = await agent.ended()
    agent.engine.hold("events")  # subscribed, without events
    async with _looked_after(agent):
        await agent.engine.held("events")
        await until(lambda: agent.engine.count("list") == 2)
        agent.engine.start_from_outside(session.container)
        await agent.clock.advance(1)
        await agent.clock.advance(8)
        assert await _runs(agent, session)
        await agent.clock.advance(1)
        await until(lambda: ("kill", session.container) in agent.engine.calls)
        await until_idle()
    assert not await _runs(agent, session)


async def test_f13_what_happens_between_a_list_and_the_subscription_is_not_missed(
    agent: Agent,
) -> None:
    session = await agent.ended()
    agent.engine.hold("events")
    async with _looked_after(agent):
        await agent.engine.held("events")
        await until(lambda: agent.engine.count("list") == 2)
        agent.engine.start_from_outside(session.container)  # listed before, not subscribed yet
        agent.engine.release("events")
        await agent.clock.advance(1)
        await until(lambda: ("kill", session.container) in agent.engine.calls)
        await until_idle()
    assert not await _runs(agent, session)


async def test_broken_event_stream_is_reopened_and_followed_by_a_pass(agent: Agent) -> None:
    async with _looked_after(agent):
        await until(lambda: ("events", "") in agent.engine.calls)
        await agent.clock.advance(0)  # it is subscribed
        agent.engine.unavailable = True
        agent.engine.unavailable = False
        agent.engine.calls.clear()
        while ("events", "") not in agent.engine.calls:
            await agent.clock.advance(0.5)
        agent.engine.calls.clear()
        while not agent.engine.count("list"):
            await agent.clock.advance(0.5)


async def test_sessions_from_start_to_removal_trigger_no_pass(agent: Agent) -> None:
    async with _looked_after(agent):
        await until(lambda: ("events", "") in agent.engine.calls)
        await agent.clock.advance(1)
        await until(lambda: agent.engine.count("list") == 3)  # first, own, subscription
        for _ in range(5):
            session = await agent.sessions.start(an_id(), a_spec())
            await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
        await agent.clock.advance(5)
        await until_idle()
        assert agent.engine.count("list") == 3


async def test_f46_a_renamed_container_is_still_the_session(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        await host.engine.rename(session.container, "mine-now")
        host.engine.end("mine-now", 1)
        life = await agent.reached(session.internal_id, State.RESTARTING)
        await host.clock.advance(1)
        await life.wait_for(lambda now: now.restart_count == 1)
    async with host() as agent:
        assert agent.now(session.internal_id).state is State.RUNNING
        stopped = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        assert stopped.state == State.EXITED
        assert stopped.exit_code == 143


async def test_f46_a_container_that_somebody_removes_is_a_dead_session(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.engine.remove(session.container)
    life = await agent.reached(session.internal_id)
    assert life.session.state == State.DEAD
    assert life.session.detail == "its container vanished"
    await agent.pass_over()
    assert agent.nothing_is_held()


async def test_f10_an_orphan_that_hangs_the_engine_holds_up_nothing_else(host: Host) -> None:
    async with host() as agent:
        orphan = await agent.sessions.start(an_id(), a_spec())
        kept = await agent.ended()
        await Tombstones(agent.records, host.clock).bury(orphan.internal_id)
        await agent.records.delete(orphan)
    async with host() as agent:
        await host.clock.advance(61)
        host.engine.hold("remove")
        await agent.reconciler.pass_once()
        await host.engine.held("remove")
        host.engine.image_store.add("another@sha256:" + "1" * 64)
        await agent.reconciler.pass_once()
        assert len(agent.images.here) == 2
        removals = list(host.engine.calls).count(("remove", orphan.container))
        assert removals == 1  # one at a time per container
        host.engine.release("remove")
        await until_idle()
        found = await host.engine.list(agent.runtime.agent_id)
        assert [container.container for container in found] == [kept.container]


async def test_failed_chore_is_retried(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    session = await agent.ended()
    await agent.clock.advance(4 * 3600)
    agent.engine.fail_next("remove", errors.EngineTimeoutError("remove"))
    await agent.pass_over()
    assert "remove" in caplog.text
    assert not agent.now(session.internal_id).container_removed
    await agent.pass_over()
    assert agent.now(session.internal_id).container_removed


async def test_f03_a_kill_while_an_old_container_is_removed_leaves_nothing_of_it(
    host: Host,
) -> None:
    async with host() as agent:
        session = await agent.ended()
        await host.clock.advance(4 * 3600)
        await agent.held_at("container.removed", agent.reconciler.pass_once())
    async with host() as agent:
        await agent.pass_over()
        assert agent.now(session.internal_id).container_removed
        assert await host.engine.list(agent.runtime.agent_id) == []


@pytest.mark.parametrize("step", RESTART_STEPS)
async def test_f03_a_kill_during_a_restart_neither_doubles_nor_forgets_it(
    host: Host, step: str
) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        agent.steps.hold(step)
        await agent.fail(session, then=1)
        await agent.steps.reached(step)
        process = (await host.engine.inspect(session.container)).process
    async with host() as agent:
        await host.clock.advance(1)
        life = await agent.reached(session.internal_id, State.RUNNING)
        assert life.session.process == process
        assert life.session.restart_count == 1
        assert [port.host for port in life.session.ports] == [p.host for p in session.ports]


@pytest.mark.parametrize("step", REMOVAL_STEPS)
async def test_f03_a_kill_while_a_session_is_discarded_leaves_nothing_that_starts_again(
    host: Host, step: str
) -> None:
    async with host() as agent:
        session = await agent.ended()
        stop = agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
        await let_go(await agent.held_at(step, stop))
    async with host() as agent:
        # A caller without a response repeats the call.
        with contextlib.suppress(errors.SessionNotFoundError):
            await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
        with pytest.raises(errors.SessionStoppedError):
            await agent.sessions.start(session.internal_id, a_spec())
        assert agent.directories() == []
        assert await host.engine.list(agent.runtime.agent_id) == []


async def test_directories_without_a_record_expire_like_logs(host: Host) -> None:
    async with host() as agent:
        kept = await agent.ended()
        lost = an_id()
        young = an_id()
        for internal_id in (lost, young):
            agent.records.directory(internal_id).mkdir()
        os.utime(agent.records.directory(lost), (host.clock.time() - WEEK - 1,) * 2)
        os.utime(agent.records.directory(young), (host.clock.time() - WEEK + 60,) * 2)
    async with host() as agent:
        assert agent.directories() == sorted([kept.internal_id, young])
        os.utime(agent.records.directory(young), (host.clock.time() - WEEK - 1,) * 2)
        await agent.pass_over()
        assert agent.directories() == [kept.internal_id]


async def test_sessions_are_adopted_when_images_cannot_be_listed(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
    async with host(reconcile=False) as agent:
        host.engine.fail_next("images", errors.EngineTimeoutError("images"))
        with pytest.raises(errors.EngineTimeoutError):
            await agent.reconciler.pass_once()
        assert agent.sessions.reconciled
        assert agent.now(session.internal_id).state is State.RUNNING


async def test_f35_a_full_disk_and_a_lost_record_keep_nobody_from_being_adopted(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host() as agent:
        lost, good = [await agent.sessions.start(an_id(), a_spec(ttl=60.0)) for _ in range(2)]
        await agent.lose_record(lost.internal_id)
    monkeypatch.setattr(Records, "create", FULL)
    async with host() as agent:
        for session in (lost, good):
            found = agent.now(session.internal_id)
            assert found.state == State.RUNNING
            assert found.process == session.process


@pytest.mark.parametrize("is_full_at_the_end", [False, True])
async def test_session_without_a_directory_gets_one_once_there_is_room(
    host: Host, monkeypatch: pytest.MonkeyPatch, is_full_at_the_end: bool
) -> None:
    async with host() as agent:
        lost = await agent.sessions.start(an_id(), a_spec())
        await agent.lose_record(lost.internal_id)
    make = Path.mkdir

    def full(path: Path, *args: Any, **options: Any) -> None:
        if lost.internal_id in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        make(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    async with host() as agent:
        if not is_full_at_the_end:
            monkeypatch.undo()
        await agent.sessions.stop(lost.internal_id, EndReason.STOPPED)
        await until_idle()
        monkeypatch.undo()
        await agent.clock.advance(60.0)
        await agent.pass_over()
        assert agent.now(lost.internal_id).log_sealed
        assert agent.recorded(lost.internal_id).log_sealed
        await agent.sessions.stop(lost.internal_id, EndReason.STOPPED, discard=True)
        assert agent.engine.all == []


async def test_f35_a_stop_on_a_full_disk_is_never_followed_by_a_start(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        monkeypatch.setattr(agent.records, "save", FULL)  # until this agent has ended
        stopped = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        assert stopped.state is State.EXITED
    async with host() as agent:
        life = await until_sealed(agent, session.internal_id)
        assert life.session.state == State.EXITED
        assert life.session.end_reason == EndReason.STOPPED
        assert life.session.restart_count == 0
        assert not await _runs(agent, session)


async def test_container_missing_from_one_list_is_not_dead(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
    async with host(reconcile=False) as agent:
        await agent.recovery.adopt([])  # a list without it
        await until_idle()
        found = agent.now(session.internal_id)
        assert found.state == State.RUNNING
        assert found.process == session.process
        await agent.pass_over()
        assert await _runs(agent, session)


async def test_stopped_session_without_its_record_does_not_restart(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        await agent.records.delete(session)
    async with host() as agent:
        life = await until_sealed(agent, session.internal_id)
        assert life.session.state == State.EXITED
        assert life.session.exit_code == 143
        assert not await _runs(agent, session)


async def test_stop_interrupts_a_restart_that_waits_for_a_slot(host: Host) -> None:
    async with host(start_slots=1) as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        await agent.reservations.start_slots.acquire("alice")
        await agent.fail(session, then=1)
        stopped = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        assert stopped.state == State.EXITED
        assert stopped.restart_count == 0
        agent.reservations.start_slots.release("alice")
        assert (await agent.sessions.start(an_id(), a_spec())).state is State.RUNNING


@pytest.mark.parametrize("restart", [False, True])
async def test_f11_an_end_that_the_engine_missed_frees_the_ports(
    agent: Agent, restart: bool
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=restart))
    agent.engine.lose_process(session.container)
    life = agent.sessions.life(session.internal_id)
    while not (life.session.state.ended or life.session.restart_count):
        await agent.clock.advance(5)
    found = await agent.engine.inspect(session.container)
    if restart:
        assert life.session.state == State.RUNNING
        assert life.session.process == found.process
    else:
        # The exit code that the engine makes up is not believed.
        assert life.session.state == State.DEAD
        assert life.session.exit_code is None
        assert not found.is_running


async def test_own_container_wins_over_a_copy_with_its_label(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        ours = agent.runtime.agent_id
    [own] = await host.engine.list(ours)
    twin = replace(own, container="f" * 64, name="twin", process=None)
    for listed in ([own, twin], [twin, own]):
        async with host(reconcile=False) as agent:
            await agent.recovery.adopt(listed)
            found = agent.now(session.internal_id)
            assert found.container == own.container
            assert found.process == own.process


async def test_running_container_with_an_invalid_label_is_kept(host: Host) -> None:
    with mock.patch("agent.sessions.containers.encode_label", return_value="{}"):
        async with host() as agent:
            session = await agent.sessions.start(an_id(), a_spec())
            await agent.lose_record(session.internal_id)
    async with host() as agent:
        for _ in range(3):
            await agent.pass_over(after=61)
        assert await _runs(agent, session)
        host.engine.end(session.container, 0)
        await agent.pass_over()
        await agent.pass_over(after=61)
        assert await host.engine.list(agent.runtime.agent_id) == []


async def test_failed_pass_is_repeated(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    broken = PermissionError(13, "as scripted")
    with mock.patch.object(agent.recovery, "sweep", side_effect=broken) as sweep:
        async with _looked_after(agent):
            await until(lambda: "internal error" in caplog.text)
            sweep.side_effect = None
            before = agent.engine.count("list")
            await agent.clock.advance(31)
            await until(lambda: agent.engine.count("list") > before)


async def test_init_programs_of_all_containers_are_kept(agent: Agent) -> None:
    await agent.pass_over()
    assert agent.init_programs_in_use[-1] == set()
    await agent.sessions.start(an_id(), a_spec())
    await agent.ended()
    await agent.pass_over()
    assert agent.init_programs_in_use[-1] == {INIT.name}


async def test_pass_goes_on_when_the_init_cannot_be_written(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    session = await agent.ended()
    full = OSError(errno.ENOSPC, "No space left on device")
    keep = mock.Mock(side_effect=full)
    reconciler = Reconciler(
        agent.runtime,
        agent.reservations.disks,
        agent.sessions,
        agent.recovery,
        images=agent.images,
        prepared=agent.adoption,
        learn=lambda _: None,
        keep_init=keep,
    )
    await agent.clock.advance(4 * 3600)
    await reconciler.pass_once()
    await until_idle()
    assert "cannot write the init of containers" in caplog.text
    assert agent.now(session.internal_id).container_removed
