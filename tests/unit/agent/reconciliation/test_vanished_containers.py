"""Prepared containers that vanish before the next agent has compared them."""

import pytest

from agent.domain.containers.engine import LABEL_PREPARED, Container
from agent.domain.errors import EngineTimeoutError
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import Host
from tests.support.agent.keeping import left_by_a_run
from tiltyard.contract import Protocol


async def test_ports_of_a_container_that_vanishes_before_it_is_inspected_are_released(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = await left_by_a_run(host, a_shape(), a_shape("other"))
    inspect = host.engine.inspect

    async def vanished(container: str) -> Container:
        if container == found.container:
            await host.engine.remove(container)
        return await inspect(container)

    monkeypatch.setattr(host.engine, "inspect", vanished)
    async with host(prepared=8) as agent:
        await agent.pass_over()
        assert len(agent.prepared.stock) == 1
        assert agent.reservations.ports.free(Protocol.UDP) == 99
        assert len(await agent.records.prepared_ids()) == 1


@pytest.mark.parametrize("has_folder", [True, False])
async def test_ports_of_a_container_that_vanishes_before_it_is_compared_are_released(
    host: Host, has_folder: bool
) -> None:
    found, _ = await left_by_a_run(host, a_shape(), a_shape("other"))
    host.engine.fail_next("inspect", EngineTimeoutError("inspect"))
    async with host(prepared=8) as agent:
        assert agent.reservations.ports.free(Protocol.UDP) == 98
        await host.engine.remove(found.container)
        if not has_folder:
            await agent.records.drop_prepared(found.labels[LABEL_PREPARED])
        await agent.pass_over()
        assert len(agent.prepared.stock) == 1
        assert agent.reservations.ports.free(Protocol.UDP) == 99
