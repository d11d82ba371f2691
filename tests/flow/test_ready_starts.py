"""`Prefer: wait=ready` through both programs, with restarts meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.flow.whole import Whole
from tests.support.controlplane.system import Answer, assert_error


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Whole]:
    async with Whole(tmp_path) as running:
        await running.make_game()
        running.engine.binds_at_once = False
        yield running


def begin(whole: Whole, wait: str = "wait=60") -> asyncio.Task[Answer]:
    body = {"location": "local", "image": "game", "id": "match"}
    headers = {"Prefer": f"wait=ready; {wait}"}
    call = whole.call("POST", "/session", json=body, headers=headers)
    return asyncio.create_task(call, name="caller")


async def running(whole: Whole) -> str:
    """Wait until the session runs; its container."""
    await whole.becomes("match", "running")
    [container] = whole.host.live
    return container


async def test_the_answer_comes_when_the_host_has_seen_the_ports_bound(whole: Whole) -> None:
    starting = begin(whole)
    container = await running(whole)
    assert not starting.done()
    whole.engine.bind(container)
    answer = await starting
    assert (answer.status, answer.headers["Preference-Applied"]) == (201, "wait=ready")
    [session] = whole.host.sessions
    assert session.ready_time is not None


async def test_what_is_not_ready_in_time_leaves_nothing_but_its_end(whole: Whole) -> None:
    assert_error(await begin(whole, "wait=1"), 504)
    assert await whole.status_of("match") == "exited"
    [session] = whole.host.sessions
    assert session.ready_time is None


async def test_a_restart_of_the_agent_does_not_end_the_wait(whole: Whole) -> None:
    starting = begin(whole)
    container = await running(whole)
    await whole.host.stop()
    whole.engine.bind(container)
    await whole.host.start()
    assert (await starting).status == 201


async def test_a_game_that_fails_while_it_loads_is_waited_for_when_it_restarts(
    whole: Whole,
) -> None:
    body = {"location": "local", "image": "game", "id": "match", "restart": True}
    call = whole.call("POST", "/session", json=body, headers={"Prefer": "wait=ready; wait=60"})
    starting = asyncio.create_task(call, name="caller")
    container = await running(whole)
    whole.engine.binds_at_once = True
    whole.engine.end(container, 1)
    assert (await starting).status == 201
    [session] = whole.host.sessions
    assert session.restart_count == 1
