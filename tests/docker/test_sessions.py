"""Sessions on a real Docker Engine, through the public API, with both programs as processes."""

import json
import re
import socket
from pathlib import Path

import pytest

from tests.demo_game import TCP_PORT, UDP_PORT, Image
from tests.demo_game.player import saved, tcp_greeting, udp_round_trip
from tests.docker.stack import (
    PATIENCE,
    Stack,
    a_stack,
    environment_of,
    eventually,
    play_round,
    udp_port_of,
)
from tests.docker.test_readiness import container_of
from tests.support.harness import Registry
from tests.support.pushed_image import push_image

LINE = re.compile(rb"(\d{6,}) \S+ (.*)")


def test_a_player_reaches_the_game_and_its_log_and_files_can_be_read(shared_stack: Stack) -> None:
    made = shared_stack.start(
        id="match / 1 ü", labels={"mode": "duel"}, env={"WHERE": "$TILTYARD_HOST"}
    )
    assert made["id"] == "match / 1 ü"
    ports = {(port["type"], port["container"]): port["host"] for port in made["ports"]}
    udp_round_trip(made["host"], ports["udp", UDP_PORT])
    assert tcp_greeting(made["host"], ports["tcp", TCP_PORT]) == "demo game match / 1 ü"

    environment = environment_of(container_of(shared_stack, made["id"]))
    assert environment["WHERE"] == made["host"]
    assert environment[f"TILTYARD_PORT_UDP_{UDP_PORT}"] == str(ports["udp", UDP_PORT])

    described = shared_stack.client.get("/session/match%20%2F%201%20%C3%BC").expect(200).json()
    assert described["status"] == "running"
    assert described["port"] == {
        f"{container_port}/{protocol}": host_port
        for (protocol, container_port), host_port in ports.items()
    }
    assert json.loads(described["labels"]["tags"]) == {"mode": "duel"}
    assert "WHERE" not in json.loads(described["labels"]["env"])

    with shared_stack.client.stream(
        "/logs", id=made["id"], follow="true", timeout=PATIENCE
    ) as log:
        assert log.readline().startswith(b"000001 ")
        shared_stack.client.get("/artifacts", session=made["id"], path="/data").expect(409)
        shared_stack.end(made["id"])
        rest = log.read().splitlines()
    assert rest[-1].endswith(b"SIGTERM: saving")
    shared_stack.client.delete_session(made["id"]).expect(409)

    answer = shared_stack.client.get("/artifacts", session=made["id"], path="/data/save.json")
    assert saved(answer.expect(200).body)["session"] == made["id"]
    shared_stack.client.get("/artifacts", session=made["id"], path="/none").expect(404)
    sealed = shared_stack.client.get("/logs", id=made["id"]).expect(200).body
    assert sealed.splitlines()[1:] == rest


def test_a_game_that_ends_by_itself_leaves_its_exit_code(shared_stack: Stack) -> None:
    made = shared_stack.start(args=["--exit-after", "0.2", "--exit-code", "7"])
    shared_stack.until(made["id"], "exited")
    record = shared_stack.record(made["id"])
    assert record["exit_code"] == 7
    assert record["end_reason"] == "exited"


def test_f29_a_game_that_ignores_sigterm_is_killed(stack: Stack) -> None:
    made = stack.start(args=["--ignore-sigterm"], restart=True)
    with stack.client.stream("/logs", id=made["id"], follow="true", timeout=PATIENCE) as log:
        assert log.readline()  # from now on it ignores SIGTERM
    stack.end(made["id"])
    assert stack.status(made["id"]) == "exited"
    stack.client.delete_session(made["id"]).expect(409)
    record = stack.record(made["id"])
    assert record["end_reason"] == "stopped"
    assert record["exit_code"] == 137
    assert record["restart_count"] == 0
    [container] = stack.containers().values()
    assert container.attrs["State"]["ExitCode"] == 137


@pytest.mark.slow
def test_a_crash_loop_is_restarted_on_the_same_ports_until_it_is_stopped(stack: Stack) -> None:
    made = stack.start(args=["--exit-after", "0.1", "--exit-code", "1"], restart=True)
    eventually(lambda: stack.record()["restart_count"] >= 2, "it is restarted")
    described = stack.client.get(f"/session/{made['id']}").expect(200).json()
    assert sorted(described["port"].values()) == sorted(port["host"] for port in made["ports"])
    stack.end(made["id"])
    count = stack.record()["restart_count"]
    stack.agent.restart()
    stack.until(made["id"], "exited")
    assert stack.record()["restart_count"] == count


def test_an_image_that_cannot_run_is_refused_and_leaves_nothing(
    shared_stack: Stack, registry: Registry
) -> None:
    push_image(registry.address, "broken", config={"Entrypoint": ["/no/such"]})
    shared_stack.make_game("broken", repository="broken")
    before = traces(shared_stack)
    answer = shared_stack.try_to_start(image="broken")
    body = answer.expect(420).json()
    assert "retry-after" not in answer.headers
    assert "no/such" in body["details"]
    assert traces(shared_stack) == before


def traces(stack: Stack) -> dict[str, set[str]]:
    """What sessions leave."""
    return {
        "containers": set(stack.containers()),
        "directories": stack.agent.directories(),
        "sessions": {session["id"] for session in stack.client.sessions(all="true")},
    }


def test_port_of_a_host_process_is_skipped(shared_stack: Stack) -> None:
    containers = len(shared_stack.containers())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 20000))
        made = shared_stack.start()
    assert udp_port_of(made) > 20000  # the next one, or another after an abandoned start
    play_round(made)
    assert len(shared_stack.containers()) == containers + 1


def test_ports_all_taken_are_a_420_that_leaves_nothing(
    docker_engine: Path, demo_image: Image
) -> None:
    with (
        a_stack(docker_engine, demo_image, port_range="21000-21000") as stack,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken,
    ):
        taken.bind(("127.0.0.1", 21000))
        assert int(stack.try_to_start().expect(420).headers["retry-after"]) >= 1
        assert stack.containers() == {}
        assert stack.agent.directories() == set()


def numbered(log: bytes) -> list[int]:
    lines = [LINE.fullmatch(line) for line in log.splitlines()]
    return [int(line[1]) for line in lines if line is not None]


@pytest.mark.thorough
@pytest.mark.slow
def test_sigkill_of_the_agent_while_a_sixth_session_starts(stack: Stack) -> None:
    """Five sessions continue unchanged, and callers never see the sixth."""
    five = [stack.start(args=["--lines-per-second", "100"]) for _ in range(5)]
    before = stack.pids()
    assert len(before) == 5
    for step in ("start.created", "start.saved"):  # test_crashes.py has every one
        stack.agent.settings["failpoint"] = f"{step}:kill"
        stack.agent.restart()
        eventually(lambda: refused_and_killed(stack), f"killed at {step}")
        stack.restart_agent()
        eventually(lambda: set(stack.containers()) == set(before), f"no orphan after {step}")
        assert stack.pids() == before, step
    assert {session["id"] for session in stack.client.sessions()} == {made["id"] for made in five}
    for made in five:
        play_round(made)
        with stack.client.stream("/logs", id=made["id"], follow="true", timeout=PATIENCE) as log:
            stack.end(made["id"])
            numbers = numbered(log.read())
        assert numbers == list(range(1, len(numbers) + 1))
        sealed = numbered(stack.client.get("/logs", id=made["id"]).expect(200).body)
        assert sealed == numbers
    assert len(stack.agent.directories()) == 5


def refused_and_killed(stack: Stack) -> bool:
    """Request a session until the agent kills itself at the failpoint."""
    assert stack.try_to_start().status in {404, 420}  # 404 while no healthy host has the tag
    return stack.agent.process.returncode == -9
