"""What callers and operators see of prepared containers."""

import pytest

from tests.support.controlplane.shapes import key_of
from tests.support.controlplane.system import System
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import PreparedShape

pytestmark = [pytest.mark.system(agents=2, application={}), pytest.mark.usefixtures("quick_pulls")]
CAUSE = "engine_error: no space for a network"


async def started(system: System) -> agent_pb2.SessionSpec:
    """Start a session that its host has reported; return its spec."""
    (await system.start()).expect(201)
    await system.catches_up()
    [spec] = [request.spec for agent in system.agents for request in agent.started]
    return spec


async def report(system: System, *shapes: PreparedShape) -> None:
    """Report the prepared containers of the first agent's host."""
    for shape in shapes:
        system.agent.host.prepared.add(
            key=shape.key, image=shape.image, kept=shape.kept, error=shape.error
        )
    system.agent.change_host()
    await system.has_reported("a0", prepared={shape.key: shape for shape in shapes})


async def test_caller_sees_why_a_host_cannot_prepare_containers_of_a_tag(system: System) -> None:
    spec = await started(system)
    await report(system, PreparedShape(key_of(spec), spec.image, 0, CAUSE))
    shown = await system.read("/tag/local/game/v1")
    assert shown == {"exists": True, "preparationErrors": {"192.0.2.1": CAUSE}}


async def test_caller_sees_nothing_of_containers_that_could_be_prepared(system: System) -> None:
    spec = await started(system)
    await report(system, PreparedShape(key_of(spec), spec.image, 3))
    assert await system.read("/tag/local/game/v1") == {"exists": True}


async def test_caller_sees_no_errors_of_another_account(system: System) -> None:
    """It may have the same image, but never the same shape."""
    spec = await started(system)
    await report(system, PreparedShape(key_of(spec), spec.image, 0, CAUSE))
    await system.make_application(account="bob")
    assert await system.read("/tag/local/game/v1", account="bob") == {"exists": True}


async def test_caller_sees_no_errors_of_an_earlier_version_of_the_application(
    system: System,
) -> None:
    spec = await started(system)
    await report(system, PreparedShape(key_of(spec), spec.image, 0, CAUSE))
    (await system.edit(limits={"cpu": 3, "ram": 512})).expect(204)
    assert await system.read("/tag/local/game/v1") == {"exists": True}


async def test_operator_sees_the_prepared_containers_of_a_host(system: System) -> None:
    await report(
        system,
        PreparedShape("1", "r/a@sha256:1", 2),
        PreparedShape("2", "r/b@sha256:2", 3),
        PreparedShape("3", "r/c@sha256:3", 0, CAUSE),
    )
    shown = await system.read("/operator/agent/a0")
    assert shown["preparedCount"] == 3
    assert shown["prepared"] == [
        {"image": "r/c@sha256:3", "kept": 0, "cause": CAUSE},
        {"image": "r/b@sha256:2", "kept": 3, "cause": None},
        {"image": "r/a@sha256:1", "kept": 2, "cause": None},
    ]


async def test_prepared_containers_are_no_sessions(system: System) -> None:
    spec = await started(system)
    before = await system.read("/operator/agent/a0")
    await report(system, PreparedShape(key_of(spec), spec.image, 7))
    after = await system.read("/operator/agent/a0")
    assert after["sessions"] == before["sessions"]
    assert after["reserved"] == before["reserved"]
    assert after["freeSessions"] == before["freeSessions"]
    assert len((await system.read("/session"))["sessions"]) == 1
