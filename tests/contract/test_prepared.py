"""Containers that no session has yet, over the fake engine and over Docker."""

from dataclasses import replace

import pytest

from agent.domain import errors
from agent.domain.containers.engine import (
    LABEL_CONFIG,
    LABEL_PREPARED,
    LABEL_SESSION,
    ContainerStatus,
    InitState,
    container_name,
    prepared_name,
)
from tests.contract.stages import (
    Stage,
    channel_of,
    created,
    ended,
    hand_over,
    port,
    running,
    spec,
    start,
    stopped,
    waiting,
)
from tiltyard.contract import Protocol, Resources

TAKEN = "0c5b9d2e-6a5b-4a36-9d3c-2f0d6a3b7c11"  # Internal id of the session that takes one
NOBODY = "tiltyard-nonesuch"


async def test_has_a_name_and_labels_of_its_own(stage: Stage) -> None:
    wanted = await spec(stage, prepared=True)
    digest = await stage.engine.config_digest(wanted)
    found = await stage.engine.inspect(await stage.engine.create(wanted))
    assert found.name == prepared_name(wanted.internal_id)
    assert found.labels == wanted.labels | {LABEL_CONFIG: digest}
    assert found.labels[LABEL_PREPARED] == wanted.internal_id
    assert LABEL_SESSION not in found.labels
    assert await stage.engine.list(stage.agent_id) == [found]


async def test_its_name_is_given_once(stage: Stage) -> None:
    wanted = await spec(stage, prepared=True)
    await stage.engine.create(wanted)
    with pytest.raises(errors.ContainerExistsError) as error:
        await stage.engine.create(wanted)
    assert error.value.name == prepared_name(wanted.internal_id)


async def test_digest_is_of_what_all_of_one_shape_share(stage: Stage) -> None:
    one = await spec(stage, prepared=True, ports=(port(Protocol.UDP, 20_000),))
    other = await spec(
        stage, prepared=True, ports=(port(Protocol.UDP, 20_001),), record='{"format": 2}'
    )
    digest = await stage.engine.config_digest(one)
    assert await stage.engine.config_digest(other) == digest
    for change in (
        {"image": stage.images.no_user},
        {"init": "/nonexistent/init/" + "1" * 64},
        {"limits": Resources(10**9, 64 * 2**20)},
        {"ports": (port(Protocol.TCP, 20_000),)},
        {"bind_address": "127.0.0.2"},
    ):
        changed = replace(one, **change)
        assert await stage.engine.config_digest(changed) != digest


async def test_executes_its_program_once_a_session_has_it(stage: Stage) -> None:
    container = await waiting(stage, prepared=True)
    assert container.init is InitState.WAITING
    await hand_over(stage, container)
    found = await stage.engine.inspect(container.container)
    await stage.ready(found)
    assert found.process == container.process
    assert found.init is InitState.RUNNING
    assert (await stopped(stage, found)).status is ContainerStatus.ENDED


async def test_is_renamed_while_it_runs(stage: Stage) -> None:
    container = await running(stage, prepared=True)
    assert await stage.engine.list(stage.agent_id) == [container]
    await stage.engine.rename(container.container, container_name(TAKEN))
    found = await stage.engine.inspect(container_name(TAKEN))
    assert found == replace(container, name=container_name(TAKEN))
    # The list may be answered from what the one before has read.
    assert await stage.engine.list(stage.agent_id) == [found]
    with pytest.raises(errors.ContainerGoneError):
        await stage.engine.inspect(container.name)


async def test_keeps_its_new_name_over_runs(stage: Stage) -> None:
    container = await running(stage, prepared=True)
    await stage.engine.rename(container.container, container_name(TAKEN))
    await stage.end(container)
    assert (await ended(stage, container)).name == container_name(TAKEN)
    assert (await start(stage, container)).name == container_name(TAKEN)


async def test_renaming_to_its_own_name_does_nothing(stage: Stage) -> None:
    container = await created(stage, prepared=True)
    await stage.engine.rename(container.container, container.name)
    assert await stage.engine.inspect(container.container) == container


async def test_a_name_of_another_container_is_taken(stage: Stage) -> None:
    other = await created(stage)
    container = await created(stage, prepared=True)
    with pytest.raises(errors.ContainerExistsError) as error:
        await stage.engine.rename(container.container, other.name)
    assert error.value.name == other.name
    assert await stage.engine.inspect(container.container) == container


async def test_what_is_gone_cannot_be_renamed(stage: Stage) -> None:
    with pytest.raises(errors.ContainerGoneError) as error:
        await stage.engine.rename(NOBODY, container_name(TAKEN))
    assert error.value.container == NOBODY


async def test_events_are_of_sessions_alone(stage: Stage) -> None:
    async with stage.engine.events(stage.agent_id) as sessions:
        prepared = await created(stage, prepared=True)
        await stage.engine.start(prepared.container, channel_of(stage, prepared))
        container = await created(stage)
        assert await anext(sessions) == container.labels[LABEL_SESSION]
