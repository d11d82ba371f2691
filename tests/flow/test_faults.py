"""Bad input and faults: each has its decided answer, and nothing is left behind by it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.domain.steps import START_STEPS
from tests.flow.whole import Whole
from tests.support.controlplane.system import assert_error, eventually


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Whole]:
    async with Whole(tmp_path) as whole:
        await whole.make_game()
        yield whole


@pytest.mark.parametrize(
    ("body", "status", "fields"),
    [
        ("{", 422, ()),
        ("[]", 422, ()),
        ("null", 422, ()),
        ('{"location": "local", "image": "game", "colour": 1}', 422, ("colour",)),
        ('{"location": null, "image": "game"}', 422, ("location",)),
        ('{"image": "game"}', 422, ("location",)),
        ('{"location": "local", "image": "game", "ttl": "soon"}', 422, ("ttl",)),
        ('{"location": "local", "image": "game", "id": ""}', 422, ("id",)),
        ('{"location": "local", "location": "local", "image": "game"}', 422, ()),
        ('{"location": "nowhere", "image": "game"}', 404, ()),
        ('{"location": "elsewhere", "image": "game"}', 404, ()),
        ('{"location": "local", "image": "chess"}', 404, ()),
        ('{"location": "local", "image": "game", "version": "v9"}', 404, ()),
        ('{"location": "local", "image": "game", "env": {"TILTYARD_HOST": "x"}}', 422, None),
    ],
)
async def test_a_bad_request_is_refused(
    whole: Whole, body: str, status: int, fields: tuple[str, ...] | None
) -> None:
    answer = await whole.call("POST", "/session", data=body)
    assert_error(answer, status, *(fields or ()))
    await whole.nothing_is_left_anywhere()


async def test_null_for_an_optional_property_is_absent(whole: Whole) -> None:
    answer = await whole.start(args=None, ttl=None, env=None, labels=None, id=None, restart=None)
    assert answer.status == 201, answer.text


@pytest.mark.parametrize("token", ["", "nonsense", "ty_x_y"])
async def test_a_wrong_token_is_refused(whole: Whole, token: str) -> None:
    answer = await whole.call(
        "POST", "/session", json={}, headers={"Authorization": f"Bearer {token}"}
    )
    assert_error(answer, 401)
    await whole.nothing_is_left_anywhere()


async def test_a_token_without_the_scope_is_refused(whole: Whole) -> None:
    answer = await whole.call("POST", "/session", json={}, token=whole.operator_token)
    assert_error(answer, 403)
    await whole.nothing_is_left_anywhere()


async def test_no_engine_is_a_420(whole: Whole) -> None:
    whole.engine.unavailable = True
    answer = await whole.start()
    assert_error(answer, 420)
    assert int(answer.headers["Retry-After"]) >= 1
    whole.engine.unavailable = False
    await whole.nothing_is_left_anywhere()


@pytest.mark.parametrize("call", ["create", "start"])
async def test_a_hanging_engine_is_a_420_in_time_and_its_late_work_is_undone(
    whole: Whole, call: str
) -> None:
    starts = whole.control_plane._starts
    starts.start_timeout = 2.5
    whole.engine.hold(call)
    answer = await whole.start(id="late")
    assert_error(answer, 420)
    await whole.becomes("late", "")  # which may take longer than its caller waits
    assert_error(await whole.call("GET", "/session/late"), 404)
    whole.engine.release(call)
    await whole.nothing_is_left_anywhere()
    starts.start_timeout = whole.config.start_timeout
    assert (await whole.start(id="late")).status == 201


async def test_an_image_that_vanished_is_a_420(whole: Whole) -> None:
    whole.engine._images.clear()
    assert_error(await whole.start(), 420)
    await whole.nothing_is_left_anywhere()


async def test_an_image_that_cannot_run_is_a_420_without_retry_after(whole: Whole) -> None:
    whole.engine.cannot_run |= whole.engine._images
    answer = await whole.start()
    assert_error(answer, 420)
    assert "Retry-After" not in answer.headers
    assert "told so" in answer.json["details"]
    await whole.nothing_is_left_anywhere()


async def test_ports_that_others_use_are_a_420(tmp_path: Path) -> None:
    async with Whole(tmp_path, agent={"port_range": "20000-20000"}) as whole:
        await whole.make_game()
        whole.engine.occupy("udp", 20000)
        assert_error(await whole.start(), 420)
        await whole.nothing_is_left_anywhere()
        whole.engine.vacate("udp", 20000)
        assert (await whole.start()).status == 201


@pytest.mark.parametrize(
    "settings",
    [{"port_range": "20000-20000"}, {"cpu": 1}, {"ram": 64}, {"max_sessions": 1}],
    ids=lambda settings: next(iter(settings)),
)
async def test_a_full_host_is_a_420_until_a_session_ends(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with Whole(tmp_path, agent=settings) as whole:
        await whole.make_game()
        first = (await whole.start()).json["id"]
        refused = await whole.start()
        assert_error(refused, 420)
        assert int(refused.headers["Retry-After"]) >= 1
        assert (await whole.call("DELETE", f"/session/{first}")).status == 204

        async def room_again() -> bool:
            return (await whole.start(id="again")).status == 201

        await eventually(room_again)


async def test_fifty_callers_with_one_id_make_one_session(whole: Whole) -> None:
    answers = await asyncio.gather(*(whole.start(id="one") for _ in range(50)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 49
    assert len(whole.host.live) == 1
    assert_error(await whole.start(id="one"), 409)


@pytest.mark.parametrize(
    "step",
    [
        step if step == "start.created" else pytest.param(step, marks=pytest.mark.slow)
        for step in START_STEPS
    ],
)
async def test_a_delete_at_any_moment_of_a_start_leaves_no_live_session(
    tmp_path: Path, step: str
) -> None:
    agent = {"failpoint": f"{step}:hang"}
    async with Whole(tmp_path, agent=agent, start_timeout=10.0) as whole:
        await whole.make_game()
        starting = asyncio.create_task(whole.start(id="brief"))
        await eventually(lambda: bool(whole.host.directories) or step == "start.reserved")

        async def there() -> bool:
            return await whole.status_of("brief") == "created"

        await eventually(there)
        stopping = asyncio.create_task(whole.call("DELETE", "/session/brief"))
        assert_error(await starting, 409)
        assert (await stopping).status == 204
        assert await whole.status_of("brief") in {"", "exited"}
        # The agent hangs at the step for good: after a restart it is ordered to stop what it has.
        await whole.host.stop()
        whole.host.config = whole.host.config.model_copy(update={"failpoint": ""})
        await whole.host.start()
        await whole.nothing_is_left_anywhere()


async def test_a_caller_that_hangs_up_does_not_cancel_its_start(whole: Whole) -> None:
    whole.engine.hold("create")
    caller = asyncio.create_task(whole.start(id="patient"))
    await whole.engine.held("create")
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    whole.engine.release("create")
    await whole.becomes("patient", "running")


async def test_an_agent_that_comes_back_has_its_sessions(whole: Whole) -> None:
    made = (await whole.start(id="lasting")).json
    await whole.host.stop()
    answer = await whole.call("GET", "/logs", params={"id": "lasting"})
    assert_error(answer, 503)
    await whole.host.start()

    async def readable() -> bool:
        return (await whole.call("GET", "/logs", params={"id": "lasting"})).status == 200

    await eventually(readable)
    described = (await whole.call("GET", "/session/lasting")).json
    assert described["status"] == "running"
    assert sorted(described["port"].values()) == sorted(p["host"] for p in made["ports"])
    assert (await whole.call("DELETE", "/session/lasting")).status == 204


async def test_a_control_plane_that_comes_back_knows_what_ended_meanwhile(whole: Whole) -> None:
    for name in ("ends", "stays"):
        assert (await whole.start(id=name)).status == 201
    [ends, _] = whole.host.live
    await whole.stop_serving()
    whole.engine.end(ends, 3)
    await whole.serve()
    await whole.becomes("ends", "exited")
    assert await whole.status_of("stays") == "running"
    assert (await whole.call("DELETE", "/session/stays")).status == 204


async def test_a_lost_database_is_filled_again_from_the_host(whole: Whole) -> None:
    """Accounts are recreated with the same names; their live sessions come back by tickets."""
    assert (await whole.start(id="known", labels={"mode": "duel"})).status == 201
    await whole.stop_serving()
    for path in (whole.folder / "state").glob("controlplane.db*"):
        path.unlink()
    from controlplane.app.control_plane import ControlPlane  # noqa: PLC0415

    whole.tokens = (await ControlPlane(whole.config).initialise(("alice", "bob"))).accounts
    await whole.serve()
    await whole.becomes("known", "running")
