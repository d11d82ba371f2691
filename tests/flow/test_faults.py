"""Bad input and faults: each has a defined answer and leaves nothing behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.domain.steps import START_STEPS
from tests.flow.whole import Whole
from tests.support.controlplane.system import assert_error, eventually


@pytest.mark.parametrize("call", ["create", "start"])
async def test_a_hanging_engine_is_a_420_in_time_and_its_late_work_is_undone(
    whole: Whole, call: str
) -> None:
    starts = whole.control_plane.starts
    starts.start_timeout = 2.5
    whole.engine.hold(call)
    assert_error(await whole.start(id="late"), 420)
    await whole.becomes("late", "")  # may take longer than the caller waits
    assert_error(await whole.call("GET", "/session/late"), 404)
    whole.engine.release(call)
    await whole.nothing_is_left_anywhere()
    starts.start_timeout = whole.config.start_timeout
    assert (await whole.start(id="late")).status == 201


@pytest.mark.parametrize(
    "settings",
    [
        {"port_range": "20000-20000"},
        {"cpu": 1},
        {"ram": 64},
        {"max_sessions": 1},
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_a_full_host_is_a_420_until_a_session_ends(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with Whole(tmp_path, agent=settings) as whole:
        await whole.make_game()
        first = (await whole.start()).json["id"]
        assert int(assert_error(await whole.start(), 420).headers["Retry-After"]) >= 1
        assert (await whole.call("DELETE", f"/session/{first}")).status == 204

        async def room_again() -> bool:
            return (await whole.start(id="again")).status == 201

        await eventually(room_again)


@pytest.mark.parametrize(
    "step",
    [
        step if step == "start.created" else pytest.param(step, marks=pytest.mark.slow)
        for step in START_STEPS
    ],
)
async def test_delete_at_any_moment_of_a_start_leaves_none_live(tmp_path: Path, step: str) -> None:
    async with Whole(tmp_path, agent={"failpoint": f"{step}:hang"}, start_timeout=10.0) as whole:
        await whole.make_game()
        starting = asyncio.create_task(whole.start(id="brief"))
        await eventually(lambda: bool(whole.host.directories) or step == "start.reserved")
        await whole.becomes("brief", "created")
        stopping = asyncio.create_task(whole.call("DELETE", "/session/brief"))
        assert_error(await starting, 409)
        assert (await stopping).status == 204
        assert await whole.status_of("brief") in {"", "exited"}
        # The agent hangs at the step: after a restart it is ordered to stop the session.
        await whole.host.stop()
        whole.host.config = whole.host.config.model_copy(update={"failpoint": ""})
        await whole.host.start()
        await whole.nothing_is_left_anywhere()
