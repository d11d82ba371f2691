"""Prepared containers that an earlier run of the agent has left."""

import dataclasses
from typing import Any

import pytest

from agent.domain.containers.engine import LABEL_PREPARED, LABEL_RECORD, Container
from agent.domain.kept.preparation import Discard
from agent.domain.kept.prepared import template_for
from agent.state.encoding import decode_label
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import Host
from tests.support.agent.keeping import Keeping, keeping_on, left_by_a_run
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tiltyard.contract import Protocol, SessionSpec, State, shape_key

SHAPE = a_shape()
OTHER = a_shape("other")


def is_of(container: Container, shape: SessionSpec) -> bool:
    return decode_label(container.labels).spec == shape


async def test_containers_that_wait_are_kept_with_their_ports(host: Host) -> None:
    left = await left_by_a_run(host, SHAPE, OTHER)
    creations = host.engine.count("create")
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await agent.clock.advance(60.0)
        assert keeping.waiting == left
        assert host.engine.count("create") == creations
        assert {each.key for each in keeping.keeper.shapes} == {shape_key(SHAPE), shape_key(OTHER)}
        assert agent.reservations.ports.free(Protocol.UDP) == 98
        assert keeping.keeper.take(SHAPE) is not None


async def test_containers_that_are_created_differently_now_are_removed(host: Host) -> None:
    await left_by_a_run(host, SHAPE, OTHER)
    host.engine.config_version += 1
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await until_idle()
        assert keeping.all == []
        assert keeping.discarded(Discard.OUTDATED) == 2
        assert await agent.records.prepared_ids() == []
        assert agent.nothing_is_held()


async def test_containers_that_ended_are_removed_without_a_back_off(host: Host) -> None:
    """This happens after a reboot: the shapes have not failed."""
    for found in await left_by_a_run(host, SHAPE, OTHER):
        host.engine.end(found.container, 137)
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        assert keeping.all == []
        assert keeping.discarded(Discard.ENDED) == 2
        await keeping.ordered(SHAPE)
        assert len(keeping.waiting) == 1
        assert agent.reservations.ports.free(Protocol.UDP) == 99


async def test_engine_that_was_restarted_ends_what_waits(host: Host) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE, OTHER)
        for found in keeping.waiting:
            host.engine.end(found.container, 137)
        await keeping.agent.pass_over()
        assert keeping.all == []
        await agent.clock.advance(2.0)
        assert len(keeping.waiting) == 2
        assert host.engine.ports.published.keys() == {
            (port.protocol.value, port.host)
            for prepared in keeping.keeper.stock
            for port in prepared.template.ports
        }


async def test_container_that_was_never_started_is_removed(host: Host) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        host.engine.hold("start")
        await keeping.ordered(SHAPE)
        await host.engine.held("start")
    host.engine.heal()
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await until_idle()
        assert keeping.all == []
        assert await agent.records.prepared_ids() == []
        assert agent.nothing_is_held()


@pytest.mark.parametrize("is_executed", [False, True])
async def test_container_whose_session_was_lost_is_removed(
    host: Host, caplog: pytest.LogCaptureFixture, is_executed: bool
) -> None:
    found, kept = await left_by_a_run(host, SHAPE, OTHER)
    host.engine.hand(found.container)
    if is_executed:
        host.engine.execute(found.container)
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await until_idle()
        assert keeping.waiting == [kept]
        assert "removing a container whose session was lost" in caplog.text
        assert len(agent.engine.all) == 1


async def test_container_of_a_session_is_left_alone(host: Host) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE)
        await keeping.start()
        [session] = agent.sessions.all()
        for _ in range(2):
            await keeping.compare(keeping.all)
        assert session.container in {each.container for each in keeping.all}
        assert session.prepared in await agent.records.prepared_ids()
        assert agent.now(session.internal_id).state is State.RUNNING


@pytest.mark.parametrize(
    "labels",
    [
        {LABEL_PREPARED: "../sessions"},
        {LABEL_PREPARED: an_id()},
        {LABEL_RECORD: "{}"},
        {LABEL_RECORD: ""},
    ],
)
async def test_container_with_an_invalid_label_is_removed_alone(
    host: Host, labels: dict[str, str]
) -> None:
    found, kept = await left_by_a_run(host, SHAPE, OTHER)
    inspect = host.engine.inspect

    async def mislabelled(container: str) -> Container:
        answer = await inspect(container)
        changed = labels if container == found.container else {}
        return dataclasses.replace(answer, labels={**answer.labels, **changed})

    async with host(prepared=8, reconcile=False) as agent:
        keeping = Keeping(agent)
        agent.engine.inspect = mislabelled  # type: ignore[method-assign]
        await keeping.compare([await agent.engine.inspect(each.container) for each in keeping.all])
        assert [each.container for each in keeping.all] == [kept.container]
        assert (await agent.records.run(agent.records.directory("x").parent.is_dir)) is True


async def test_folder_without_a_container_is_removed(host: Host) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE)
        lost = template_for(an_id(), SHAPE, 0.0)
        await agent.records.prepare(lost)
        await keeping.agent.pass_over()
        assert len(await agent.records.prepared_ids()) == 2
        await keeping.agent.pass_over()
        [prepared] = keeping.keeper.stock
        assert await agent.records.prepared_ids() == [prepared.prepared_id]


async def test_folders_in_use_are_kept(host: Host) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        host.engine.hold("start")
        await keeping.ordered(SHAPE)
        await host.engine.held("start")
        for _ in range(3):
            await keeping.compare([])
        assert len(await agent.records.prepared_ids()) == 1
        host.engine.release("start")
        await until_idle()
        assert len(keeping.waiting) == 1


async def test_unexpected_error_about_one_leaves_the_others(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found, kept = await left_by_a_run(host, SHAPE, OTHER)
    inspect = host.engine.inspect

    async def failing(container: str) -> Any:
        if container == found.container:
            raise RuntimeError("as scripted")
        return await inspect(container)

    monkeypatch.setattr(host.engine, "inspect", failing)
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        assert [each.container.container for each in keeping.keeper.stock] == [kept.container]
        assert "RuntimeError: as scripted" in caplog.text
        monkeypatch.undo()
        await keeping.agent.pass_over()
        assert len(keeping.keeper.stock) == 2
        assert agent.sessions.reconciled


async def test_pass_that_finds_all_as_it_was_asks_about_no_container(host: Host) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE, OTHER)
        asked = agent.engine.count("inspect")
        await keeping.agent.pass_over()
        assert agent.engine.count("inspect") == asked
        assert len(keeping.waiting) == 2


async def test_container_without_its_folder_is_removed(host: Host) -> None:
    """This happens when the state directory was restored from an older copy."""
    found, kept = await left_by_a_run(host, SHAPE, OTHER)
    async with host(prepared=8, reconcile=False) as agent, keeping_on(agent) as keeping:
        await agent.records.drop_prepared(found.labels[LABEL_PREPARED])
        await agent.pass_over()
        assert keeping.waiting == [kept]
        assert keeping.discarded(Discard.UNUSABLE) == 1


async def test_container_that_loses_its_folder_is_replaced(host: Host) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE)
        [found] = keeping.waiting
        await agent.records.drop_prepared(found.labels[LABEL_PREPARED])
        await agent.pass_over()
        assert keeping.discarded(Discard.UNUSABLE) == 1
        await agent.clock.advance(1.0)
        [other] = keeping.waiting
        assert await agent.records.prepared_ids() == [other.labels[LABEL_PREPARED]]


async def test_container_that_a_start_takes_meanwhile_is_not_discarded(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE)
        [found] = keeping.waiting

        async def starts_meanwhile(_: object) -> str:
            await agent.sessions.start(an_id(), a_spec())
            return "another digest"

        monkeypatch.setattr(agent.engine, "config_digest", starts_meanwhile)
        await keeping.compare(keeping.all)
        monkeypatch.undo()
        [session] = agent.sessions.all()
        assert session.container == found.container
        assert agent.engine.executed[found.container] == 1
        assert keeping.discarded(Discard.OUTDATED) == 0


async def test_container_is_not_discarded_after_the_start_that_took_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start is over before the comparison, which waits for the engine, comes to it."""
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE, OTHER)
        [found] = [each for each in keeping.waiting if is_of(each, SHAPE)]
        inspect = agent.engine.inspect

        async def slow(container: str) -> Container:
            answer = await inspect(container)
            if is_of(answer, OTHER):
                await keeping.start()
            return answer

        monkeypatch.setattr(agent.engine, "inspect", slow)
        await keeping.compare([found])  # OTHER is inspected, since the list lacks it
        [session] = agent.sessions.all()
        assert session.container == found.container
        assert session.state is State.RUNNING
        assert keeping.discarded(Discard.ENDED) == 0
        assert found.container in {each.container for each in keeping.all}


@pytest.mark.parametrize("setting", [0, 1])
async def test_lower_setting_removes_what_exceeds_it(host: Host, setting: int) -> None:
    await left_by_a_run(host, SHAPE, OTHER)
    async with host(prepared=setting) as agent, keeping_on(agent) as keeping:
        await until_idle()
        assert len(keeping.waiting) == setting
        assert keeping.discarded(Discard.UNNEEDED) == 2 - setting
        assert len(await agent.records.prepared_ids()) == setting
