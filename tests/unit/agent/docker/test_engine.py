"""An engine that fails, hangs, lies and vanishes at will, as a real one cannot."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agent.docker.calls import GENERAL_CALLS, RESERVED_CALLS, Timeouts
from agent.docker.engine import DockerEngine
from agent.domain import errors
from agent.domain.containers.engine import ContainerStatus, InitState, Start
from agent.init.channel import make_channel
from agent.kernel.processes import live_process
from tests.support.agent.real_init import real_init
from tests.support.agent.samples import a_container_spec
from tests.support.agent.scripted_engine import (
    ACCEPTED,
    CREATED,
    HASTY,
    IMAGE,
    ScriptedEngine,
    an_engine,
    cut,
    inspected,
    raw,
    refuses,
    says,
)

SPEC = a_container_spec(image=IMAGE)
Ask = Callable[[DockerEngine, Path], Coroutine[Any, Any, Any]]
"""A call with a channel."""

CHANGES: dict[str, tuple[str, Ask]] = {
    "create": ("POST /containers/create", lambda engine, _: engine.create(SPEC)),
    "start": ("POST /containers/x/start", lambda engine, channel: engine.start("x", channel)),
    "kill": ("POST /containers/x/kill", lambda engine, _: engine.kill("x", "SIGTERM")),
    "remove": ("DELETE /containers/x", lambda engine, _: engine.remove("x")),
    "rename": ("POST /containers/x/rename", lambda engine, _: engine.rename("x", "y")),
}
READS: dict[str, tuple[str, Ask]] = {
    "inspect": ("GET /containers/x/json", lambda engine, _: engine.inspect("x")),
    "list": ("GET /containers/json", lambda engine, _: engine.list("agent-1")),
    "images": ("GET /images/json", lambda engine, _: engine.images()),
    "info": ("GET /info", lambda engine, _: engine.info()),
}
RUNNING = inspected(Status="running", Pid=os.getpid())
"""A container whose first process is no init: a start has nothing to wait for."""
CALLS = CHANGES | READS


def startable(script: ScriptedEngine, *names: str) -> None:
    """Script a start that hangs until released, and the inspect that follows."""
    for name in names:
        script.answer(f"POST /containers/{name}/start", script.hang)
        script.answer(f"GET /containers/{name}/json", says(RUNNING))


@pytest.mark.parametrize("call", CALLS)
async def test_engine_error_is_raised_and_measured_once(script: ScriptedEngine, call: str) -> None:
    what, ask = CALLS[call]
    script.answer(what, refuses(500, "something broke"))
    with pytest.raises(errors.EngineError) as error:
        await ask(script.client, script.channel)
    assert str(error.value) == f"cannot {call}: something broke"
    value = script.client.metrics.registry.get_sample_value
    counted = {"call": call, "outcome": "engine_error"}
    assert value("tiltyard_agent_engine_calls_total", counted) == 1
    assert value("tiltyard_agent_engine_call_duration_seconds_count", {"call": call}) == 1


@pytest.mark.parametrize("call", CHANGES)
async def test_hanging_engine_leaves_outcome_unknown(script: ScriptedEngine, call: str) -> None:
    what, ask = CHANGES[call]
    script.answer(what, script.hang)
    async with an_engine(script, Timeouts(create=0.2, start=0.2, kill=0.2, remove=0.2)) as engine:
        await engine.info()  # caches the facts
        with pytest.raises(errors.EngineTimeoutError) as error:
            await ask(engine, script.channel)
    assert error.value.call == call
    assert script.seen[what] <= 1  # 0 if the request was cancelled before it was read


@pytest.mark.parametrize("call", CALLS)
async def test_missing_socket_means_unavailable_engine(tmp_path: Path, call: str) -> None:
    script = ScriptedEngine(tmp_path)
    await asyncio.to_thread(make_channel, script.channel)
    async with an_engine(script) as engine:
        with pytest.raises(errors.EngineUnavailableError, match="No such file"):
            await CALLS[call][1](engine, script.channel)


@pytest.mark.parametrize("call", CALLS)
async def test_a_broken_connection(script: ScriptedEngine, call: str) -> None:
    what, ask = CALLS[call]
    script.answer(what, cut)
    # The outcome of a change is unknown; a read has simply failed.
    error = errors.EngineTimeoutError if call in CHANGES else errors.EngineUnavailableError
    with pytest.raises(error):
        await ask(script.client, script.channel)


@pytest.mark.parametrize("body", [b'{"Id": "abc', b"", b"{}", b"[]", b"\xff"])
async def test_malformed_answer_leaves_it_unknown(script: ScriptedEngine, body: bytes) -> None:
    for call, status in (("inspect", 200), ("create", 201)):
        what, ask = CALLS[call]
        script.answer(what, raw(body, status))
        with pytest.raises(errors.EngineTimeoutError if call in CHANGES else errors.EngineError):
            await ask(script.client, script.channel)


async def test_answer_larger_than_any_list_is_not_read(
    script: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.docker.bodies.LARGEST_ANSWER", 10_000)
    script.answer("GET /images/json", raw(b" " * 9998 + b"[]"))
    assert await script.client.images() == {}
    script.answer("GET /images/json", raw(b" " * 9999 + b"[]"))
    with pytest.raises(errors.EngineError, match="its answer is too large"):
        await script.client.images()


@pytest.mark.parametrize(
    ("last_line", "cause"),
    [
        (b"exec /run/tiltyard-init: exec format error\n", ": exec /run/tiltyard-init: exec form"),
        (b"what a game printed before\n", "$"),
    ],
)
async def test_init_that_ends_before_it_waits_is_an_error(
    script: ScriptedEngine, last_line: bytes, cause: str
) -> None:
    script.answer("POST /containers/x/start", raw(b"", 204))
    running = says(inspected(Status="running", Pid=2**22 + 1))
    ended = says(inspected(Status="exited", ExitCode=1, FinishedAt="2026-11-28T00:00:00Z"))
    script.answer("GET /containers/x/json", running, running, ended)
    frame = b"2026-11-28T00:00:00.000000001Z " + last_line
    script.answer(
        "GET /containers/abc/logs", raw(b"\2\0\0\0" + len(frame).to_bytes(4, "big") + frame)
    )
    with pytest.raises(errors.EngineError, match=f"cannot start: its init ended with 1{cause}"):
        await script.client.start("x", script.channel)


async def test_container_without_a_channel_is_not_started(script: ScriptedEngine) -> None:
    with pytest.raises(errors.EngineError, match="its channel cannot be opened"):
        await script.client.start("x", script.channel / "none")
    assert script.seen["POST /containers/x/start"] == 0


async def test_hanging_starts_do_not_block_kill(script: ScriptedEngine) -> None:
    names = [f"c{number}" for number in range(GENERAL_CALLS)]
    startable(script, *names)
    script.answer("POST /containers/y/kill", raw(b"", 204))
    hanging = [asyncio.create_task(script.client.start(name, script.channel)) for name in names]
    for name in names:
        await script.arrived(f"POST /containers/{name}/start")
    await script.client.kill("y", "SIGKILL")
    script.let_go()
    await asyncio.gather(*hanging)


async def test_cancelled_call_keeps_its_slot_until_it_ends(script: ScriptedEngine) -> None:
    startable(script, "x")
    script.answer("DELETE /containers/x", raw(b"", 204))
    starting = asyncio.create_task(script.client.start("x", script.channel))
    await script.arrived("POST /containers/x/start")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    removing = asyncio.create_task(script.client.remove("x"))
    waiting_in_vain = asyncio.create_task(script.client.kill("x", "SIGTERM"))
    with pytest.raises(errors.ContainerGoneError):
        await script.client.inspect("y")
    waiting_in_vain.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting_in_vain
    assert script.seen["DELETE /containers/x"] == 0
    script.let_go()
    await removing
    assert script.seen["POST /containers/x/kill"] == 0


async def test_waiting_for_a_slot_has_a_deadline(script: ScriptedEngine) -> None:
    startable(script, "x")
    async with an_engine(script, Timeouts(kill=0.1)) as engine:
        starting = asyncio.create_task(engine.start("x", script.channel))
        await script.arrived("POST /containers/x/start")
        with pytest.raises(errors.EngineTimeoutError):
            await engine.kill("x", "SIGKILL")
        script.let_go()
        await starting
    assert script.seen["POST /containers/x/kill"] == 0


async def test_an_engine_that_comes_back_is_queried_again(tmp_path: Path) -> None:
    script = ScriptedEngine(tmp_path)
    async with an_engine(script) as engine:
        async with script.serving():
            await engine.info()
            asked = script.seen["GET /version"]
            await engine.remove("x")
            assert script.seen["GET /version"] == asked
        with pytest.raises(errors.EngineUnavailableError):
            await engine.remove("x")
        async with script.serving():
            await engine.remove("x")
            assert script.seen["GET /version"] == asked + 1


async def test_concurrent_first_calls_share_one_query(script: ScriptedEngine) -> None:
    await asyncio.gather(*(script.client.remove(f"c{n}") for n in range(2 * RESERVED_CALLS)))
    assert script.seen["GET /version"] == 1


async def test_query_needs_no_slot_of_the_calls_that_wait_for_it(script: ScriptedEngine) -> None:
    names = [f"c{number}" for number in range(GENERAL_CALLS)]
    startable(script, *names)
    script.answer("GET /containers/y/json", cut)
    starting = [asyncio.create_task(script.client.start(name, script.channel)) for name in names]
    for name in names:
        await script.arrived(f"POST /containers/{name}/start")
    with pytest.raises(errors.EngineUnavailableError):  # what is known of the engine is forgotten
        await script.client.inspect("y")
    script.let_go()
    await asyncio.gather(*starting)  # each has a slot, and inspects its container
    assert script.seen["GET /version"] == 2


async def test_hanging_query_has_a_deadline(script: ScriptedEngine) -> None:
    script.answer("GET /version", script.hang)
    async with an_engine(script, HASTY) as engine:
        with pytest.raises(errors.EngineTimeoutError):
            await engine.images()


async def test_refuses_too_old_engine(script: ScriptedEngine) -> None:
    script.answer("GET /version", says({"ApiVersion": "1.40"}))
    with pytest.raises(errors.EngineError, match=r"1\.41 is needed"):
        await script.client.info()


async def test_inspects_each_digest_until_it_is_accepted(script: ScriptedEngine) -> None:
    what = f"GET /images/{IMAGE}/json"
    script.answer(what, says({"Config": {"Volumes": {"/": {}}}}))
    for _ in range(2):
        with pytest.raises(errors.ImageCannotRunError, match="a volume"):
            await script.client.program(IMAGE, ["/game"])
    assert script.seen[what] == 2
    script.answer(what, says(ACCEPTED))
    for _ in range(2):
        assert await script.client.program(IMAGE, ()) == ("/game",)
    assert await script.client.program(IMAGE, ["/other"]) == ("/other",)
    assert script.seen[what] == 3
    script.answer("GET /images/game:v1/json", says(ACCEPTED))
    for _ in range(2):
        await script.client.program("game:v1", ())
    assert script.seen["GET /images/game:v1/json"] == 2


async def test_program_of_a_missing_image_is_unknown(script: ScriptedEngine) -> None:
    script.answer(f"GET /images/{IMAGE}/json", refuses(404, "as worded by any engine"))
    with pytest.raises(errors.ImageMissingError) as error:
        await script.client.program(IMAGE, ())
    assert error.value.image == IMAGE


async def test_remembers_programs_of_a_limited_number_of_images(
    script: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.docker.engine.MOST_PROGRAMS", 2)
    images = [f"registry.test/game@sha256:{digit * 64}" for digit in ("1", "2", "3")]
    for image in images:
        script.answer(f"GET /images/{image}/json", says(ACCEPTED))
        await script.client.program(image, ())
    for image in reversed(images):
        await script.client.program(image, ())
    asked = [script.seen[f"GET /images/{image}/json"] for image in images]
    assert asked == [2, 1, 1]


async def test_creates_network_if_default_bridge_does_not_isolate(script: ScriptedEngine) -> None:
    bodies: list[Any] = []

    async def made(request: Any) -> Any:
        bodies.append(await request.json())
        return await says({"Id": "abc"}, 201)(request)

    script.answer("GET /networks", says([{"Name": "bridge", "Options": {}}]))
    script.answer("POST /networks/create", made)
    assert any("icc" in warning for warning in (await script.client.info()).warnings)
    script.answer("POST /containers/create", made)
    assert await script.client.create(SPEC) == "abc"
    assert bodies[0]["Name"] == "tiltyard0"
    assert bodies[0]["Options"] == {
        "com.docker.network.bridge.enable_icc": "false",
        "com.docker.network.bridge.name": "tiltyard0",
    }
    assert bodies[-1]["HostConfig"]["NetworkMode"] == "tiltyard0"
    # If the network is removed, the next container creates it again.
    script.answer("POST /containers/x/start", refuses(404, "as worded by any engine"))
    with pytest.raises(errors.ContainerGoneError):
        await script.client.start("x", script.channel)
    script.answer("GET /containers/x/json", says(CREATED))
    await script.client.create(SPEC)
    assert script.seen["POST /networks/create"] == 1
    with pytest.raises(errors.EngineError, match="as worded by any engine"):
        await script.client.start("x", script.channel)
    await script.client.create(SPEC)
    assert script.seen["POST /networks/create"] == 2


async def test_calls_about_many_containers_share_a_few_connections(script: ScriptedEngine) -> None:
    await script.client.info()
    begun = len(script.requests)
    for number in range(40):
        script.answer(f"GET /containers/c{number}/json", says(CREATED))
        await script.client.inspect(f"c{number}")
    asked = script.requests[begun:]
    assert len({id(request.protocol) for request in asked}) <= RESERVED_CALLS  # each has its own


async def test_a_connection_that_the_engine_closed_is_not_used_again(tmp_path: Path) -> None:
    script = ScriptedEngine(tmp_path)
    script.answer("GET /containers/x/json", says(CREATED))
    async with an_engine(script) as engine:
        for _ in range(3):
            async with script.serving():  # then it ends, with its connections
                assert (await engine.inspect("x")).container == "abc"


async def test_waits_for_concurrent_removal(script: ScriptedEngine) -> None:
    script.answer(
        "DELETE /containers/x", refuses(409, "removal of container x is already in progress")
    )
    script.answer("POST /containers/x/wait", script.hang, refuses(404, "No such container: x"))
    removing = asyncio.create_task(script.client.remove("x"))
    await script.arrived("POST /containers/x/wait")
    assert not removing.done()
    script.answer("POST /containers/x/wait", refuses(404, "No such container: x"))
    script.let_go()
    await asyncio.gather(removing, return_exceptions=True)
    await script.client.remove("x")


def listed(container: str, state: str) -> dict[str, Any]:
    return {"Id": container, "Names": [CREATED["Name"]], "State": state, "Labels": {"a": "b"}}


async def test_one_bad_container_does_not_hide_the_others(script: ScriptedEngine) -> None:
    all_three = [listed("bad", "running"), listed("gone", "exited"), listed("good", "exited")]
    script.answer("GET /containers/json", says(all_three))
    script.answer("GET /containers/bad/json", refuses(500, "stuck"))
    script.answer("GET /containers/good/json", says(CREATED | {"Id": "good"}))
    found = {each.container: each for each in await script.client.list("agent-1")}
    assert set(found) == {"bad", "good"}
    assert found["bad"].labels == {"a": "b"}
    assert found["bad"].has_lost_process  # its end is confirmed by inspect


async def test_list_inspects_running_container_once_per_run(script: ScriptedEngine) -> None:
    script.answer("GET /containers/json", says([listed("abc", "running")]))
    runs = (says(inspected(Status="running", Pid=pid)) for pid in (os.getpid(), 2**22))
    script.answer("GET /containers/abc/json", *runs)
    first = await script.client.list("agent-1")
    assert first[0].process == await asyncio.to_thread(live_process, os.getpid())
    assert await script.client.list("agent-1") == first
    assert script.seen["GET /containers/abc/json"] == 1


async def test_list_has_the_name_that_a_container_was_given_since(script: ScriptedEngine) -> None:
    entry = listed("abc", "running")
    renamed = entry | {"Names": ["/tiltyard-y"]}
    script.answer("GET /containers/json", says([entry]), says([renamed]))
    running = inspected(Status="running", Pid=os.getpid())
    script.answer("GET /containers/abc/json", says(running))
    [before] = await script.client.list("agent-1")
    [after] = await script.client.list("agent-1")
    assert after == replace(before, name="tiltyard-y")


async def test_list_shows_what_each_init_does_now(script: ScriptedEngine) -> None:
    async with real_init(script.channel) as init:
        await init.until(InitState.WAITING)
        pid = init.process.pid
        script.answer("GET /containers/json", says([listed("abc", "running")]))
        script.answer("GET /containers/abc/json", says(inspected(Status="running", Pid=pid)))
        [before] = await script.client.list("agent-1")
        assert before.init is InitState.WAITING
        start = Start(("/bin/sleep", "infinity"), {})
        await script.client.hand_over(before, script.channel, start)
        [after] = await script.client.list("agent-1")
        assert after == replace(before, init=InitState.RUNNING)
    assert script.seen["GET /containers/abc/json"] == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, b"/data\n"),
        ({"OTHER": "/x"}, b"/data\n"),
        ({"HOME": "/given"}, b"/given\n"),
    ],
)
async def test_hands_over_the_home_that_an_image_sets(
    script: ScriptedEngine, given: dict[str, str], expected: bytes
) -> None:
    async with real_init(script.channel) as init:
        await init.until(InitState.WAITING)
        answer = inspected(Status="running", Pid=init.process.pid)
        answer["Config"] = {**answer["Config"], "Env": ["A=HOME=/a", "HOME=/b", "HOME=/data"]}
        script.answer("GET /containers/abc/json", says(answer))
        container = await script.client.inspect("abc")
        start = Start(("/bin/sh", "-c", 'echo "$HOME"'), given)
        await script.client.hand_over(container, script.channel, start)
        assert init.program.stdout is not None
        assert await asyncio.to_thread(init.program.stdout.readline) == expected


async def test_describes_running_container_without_process(script: ScriptedEngine) -> None:
    script.answer("GET /containers/json", says([listed("abc", "running")]))
    script.answer("GET /containers/abc/json", says(inspected(Status="running", Pid=2**22 + 1)))
    for found in [*await script.client.list("agent-1"), await script.client.inspect("abc")]:
        assert found.status == ContainerStatus.RUNNING
        assert found.process is None


@pytest.mark.parametrize(
    ("status", "is_its_own", "ends"),
    [
        ("created", True, True),
        ("running", True, False),
        ("created", False, False),
    ],
)
async def test_end_forgotten_ends_what_only_the_engine_takes_for_not_running(
    script: ScriptedEngine, status: str, is_its_own: bool, ends: bool
) -> None:
    container = uuid4().hex * 2
    answer = {"Id": container if is_its_own else uuid4().hex * 2}
    script.answer("GET /containers/x/json", says(inspected(Status=status) | answer))
    with a_shim(container) as shim:
        await script.client.end_forgotten("x")
        assert shim.poll() == (-signal.SIGKILL if ends else None)


@pytest.mark.parametrize("size", [0, 1, 63])
async def test_end_forgotten_needs_a_whole_id(script: ScriptedEngine, size: int) -> None:
    container = uuid4().hex * 2
    script.answer("GET /containers/x/json", says(inspected() | {"Id": container[:size]}))
    with a_shim(container) as shim:
        with pytest.raises(errors.EngineError):
            await script.client.end_forgotten("x")
        assert shim.poll() is None


@contextlib.contextmanager
def a_shim(container: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like the shim of a container."""
    command = ["containerd-shim-test", "-c", "import sys; sys.stdin.read()", "-id", container]
    with subprocess.Popen(command, executable=sys.executable, stdin=subprocess.PIPE) as shim:
        yield shim
