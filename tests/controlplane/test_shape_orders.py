"""Orders of prepared containers: hosts learn the shapes of which they are to keep one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.shapes import key_of, shape_of
from tests.support.controlplane.system import System, eventually
from tiltyard.contract import NANO, SessionSpec, shape_key

pytestmark = [pytest.mark.system(), pytest.mark.usefixtures("quick_pulls")]


def ordered(agent: FakeAgent) -> list[SessionSpec] | None:
    """Return the shapes that an agent was ordered last."""
    if not agent.shape_orders:
        return None
    shapes = map(shape_of, agent.shape_orders[-1].shapes)
    return [shape for shape in shapes if shape is not None]


async def has_order(agent: FakeAgent, *images: str) -> None:
    """Wait until an agent has an order of one shape of each of these images."""

    def is_ordered() -> bool:
        shapes = ordered(agent)
        return shapes is not None and [shape.image for shape in shapes] == list(images)

    await eventually(is_ordered)


def refuse_orders(agent: FakeAgent, reason: str) -> list[Any]:
    """Make an agent refuse further orders; return the list of those that it is sent."""
    asked: list[Any] = []
    refuse = refusing(reason)

    async def note(request: Any, context: Any) -> None:
        asked.append(request)
        await refuse(request, context)

    agent.before_shapes = note
    return asked


def is_ordering(system: System) -> bool:
    """Return whether an order to the first agent waits or is in progress."""
    return any(
        task.get_name().endswith(f"shapes on {system.agent.name}") for task in asyncio.all_tasks()
    )


async def test_host_is_ordered_the_shape_that_a_start_has(system: System) -> None:
    image = await system.make_application()
    await has_order(system.agent, image)
    (await system.start(args=["-x"], env={"A": "b"}, ttl="1h", labels={"a": "b"})).expect(201)
    [shape] = ordered(system.agent) or []
    assert shape_key(shape) == key_of(system.agent.started[0].spec)


async def test_host_without_applications_gets_an_empty_order(system: System) -> None:
    """An earlier control plane may have ordered others."""
    await has_order(system.agent)


async def test_newest_tag_takes_the_place_of_the_one_before(system: System) -> None:
    await system.make_application()
    newest = await system.enable("v2")
    await has_order(system.agent, newest)


async def test_edited_application_changes_the_order(system: System) -> None:
    image = await system.make_application()
    await has_order(system.agent, image)
    (await system.edit(limits={"cpu": 3, "ram": 512})).expect(204)

    def has_new_limits() -> bool:
        return [shape.limits.nano_cpus for shape in ordered(system.agent) or []] == [3 * NANO]

    await eventually(has_new_limits)


async def test_application_that_moved_is_not_ordered_any_more(system: System) -> None:
    image = await system.make_application()
    await has_order(system.agent, image)
    (await system.edit(regions=["elsewhere"])).expect(204)
    await has_order(system.agent)


async def test_hosts_are_ordered_only_the_applications_of_their_place(tmp_path: Path) -> None:
    system = System(tmp_path, agents=2)
    system.places["a1"] = ("elsewhere", "default")
    async with system:
        first, second = system.agents
        here = await system.make_application(tag=None)
        here = await system.enable("v1", pulled_by=[first])
        await system.make_application(
            tag=None, name="far", repository="studio/far", regions=["elsewhere"]
        )
        there = await system.enable("v1", "far", "studio/far", pulled_by=[second])
        await has_order(first, here)
        await has_order(second, there)


async def test_restarted_agent_gets_its_order_again(system: System) -> None:
    image = await system.make_application()
    await has_order(system.agent, image)
    system.agent.shape_orders.clear()
    await system.agent.restart()
    await has_order(system.agent, image)


async def test_order_is_sent_again_until_it_is_answered(system: System) -> None:
    tries = 0
    lost = asyncio.Event()

    async def lose(_: Any, context: Any) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            await context.abort(14, "lost")
        lost.set()

    system.agent.before_shapes = lose
    image = await system.make_application()
    await lost.wait()
    await has_order(system.agent, image)


async def test_rejected_order_is_not_repeated_before_it_changes(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    await has_order(system.agent)
    asked = refuse_orders(system.agent, "INVALID_ARGUMENT")
    await system.make_application()
    await eventually(lambda: len(asked) == 1)
    system.agent.change_host(free_sessions=7)
    await system.has_reported("a0", free_sessions=7)
    await system.enable("v2")
    await eventually(lambda: len(asked) == 2)
    assert len(asked[1].shapes) == 1
    await eventually(lambda: caplog.text.count("prepared containers not ordered") == 2)


async def test_agent_of_an_earlier_version_is_not_asked_again(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    await has_order(system.agent)
    asked = refuse_orders(system.agent, "UNIMPLEMENTED")
    await system.make_application()
    await eventually(lambda: len(asked) == 1)
    system.agent.change_host(free_sessions=7)
    await system.has_reported("a0", free_sessions=7)
    (await system.start()).expect(201)
    await system.catches_up()
    await eventually(lambda: not is_ordering(system))
    assert len(asked) == 1
    assert "prepared containers not ordered" not in caplog.text
