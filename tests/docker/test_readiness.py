"""Readiness on a real engine: sockets bound late, in both network modes."""

import asyncio
import signal
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.domain.sessions.session import Port, Process
from agent.kernel.processes import live_process
from agent.network.bindings import Bindings
from agent.network.socket_diag import TooManySocketsError
from tests.demo_game import TCP_PORT, UDP_PORT, Image, compiled
from tests.demo_game.player import tcp_greeting
from tests.docker.stack import Stack, a_stack, eventually, play_round
from tests.support.agent.scraped import Scrape
from tests.support.api_client import Answer
from tests.support.deployment import APPLICATION
from tests.support.harness import free_port
from tests.support.pushed_image import push_image
from tiltyard.contract import NetworkMode, Protocol

SOURCE = Path(__file__).with_name("binder.c")
MODES = ("bridge", "host")
PORTS = [{"requested": UDP_PORT, "protocol": "udp", "tls": False}]


@pytest.fixture(scope="module")
def stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    """A host with applications of the demo game and the binder, in both network modes."""
    push_image(demo_image.address, "binder", program=compiled(SOURCE).read_bytes())
    listen = f"127.0.0.1:{free_port()}"
    with a_stack(docker_engine, demo_image, metrics_listen=listen) as made:
        for mode in MODES:
            made.make_game(f"binder-{mode}", repository="binder", networkMode=mode, ports=PORTS)
        made.make_game(f"{APPLICATION}-host", networkMode="host")
        yield made


def start_when_ready(stack: Stack, seconds: int, **body: object) -> Answer:
    return stack.try_to_start({"Prefer": f"wait=ready; wait={seconds}"}, **body)


def until_late(stack: Stack, end: str, **body: object) -> str:
    """Start until the details of the 504 end so; return the last details.

    The seconds begin with the request: after them, the game of a busy host may not have bound
    its ports, and the look at them may be late.
    """
    details = ""
    for seconds in (1, 2, 4, 8, 16):
        details = str(start_when_ready(stack, seconds, **body).expect(504).json()["details"])
        assert "not bound in time" in details
        if details.endswith(end):
            break
    return details


def port_name(mode: str) -> str:
    """The port argument of a program; in host mode, a variable that the agent sets."""
    return f"TILTYARD_PORT_UDP_{UDP_PORT}" if mode == "host" else str(UDP_PORT)


def container_of(stack: Stack, session_id: str) -> Any:
    internal_id = stack.record(session_id)["internal_id"]
    [found] = [each for name, each in stack.containers().items() if internal_id in name]
    return found


def bind(stack: Stack, session_id: str) -> None:
    """Make the binder bind its sockets and wait for it."""
    container = container_of(stack, session_id)
    until_said(container, "waits")  # earlier, the signal would kill it
    container.kill(signal.SIGUSR1)
    until_said(container, "bound")


def until_said(container: Any, text: str) -> None:
    """Wait until a program has written a line that ends with this."""
    end = f"{text}\n".encode()
    eventually(lambda: end in container.logs(), f"it says {text!r}")


def game_began(stack: Stack, session_id: str) -> float:
    """The start time of the demo game, by its first line."""
    container = container_of(stack, session_id)
    until_said(container, "demo game starts")
    _, written, *_ = container.logs().decode().split()
    return datetime.fromisoformat(written).timestamp()


def ready_time(stack: Stack, session_id: str) -> float | None:
    found: float | None = stack.record(session_id)["ready_time"]
    return found


def is_bound(stack: Stack, session_id: str, *, of: str = "") -> bool:
    """Check bindings directly; `of`: another session whose processes must have the ports."""
    record = stack.record(session_id)
    other = stack.record(of or session_id)
    ports = [
        Port(each["container"], Protocol(each["protocol"]), each["host"])
        for each in record["ports"]
    ]
    mode = NetworkMode(record["spec"]["network_mode"])

    async def look() -> bool:
        bindings = Bindings()
        try:
            return await bindings.all_bound(Process(**other["process"]), mode, ports)
        finally:
            await bindings.close()

    return asyncio.run(look())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("address", "before"),
    [
        ("0.0.0.0", ()),
        ("::", ()),
        ("0.0.0.0", ("--child",)),
    ],
)
def test_ready_only_after_a_process_has_bound(
    stack: Stack, mode: str, address: str, before: tuple[str, ...]
) -> None:
    args = [*before, "udp", address, port_name(mode)]
    made = stack.start(image=f"binder-{mode}", args=args)
    assert not is_bound(stack, made["id"])
    assert ready_time(stack, made["id"]) is None
    bind(stack, made["id"])
    assert is_bound(stack, made["id"])
    eventually(lambda: ready_time(stack, made["id"]) is not None, "the agent has seen it")
    play_round(made)
    stack.end(made["id"])


@pytest.mark.parametrize("mode", MODES)
def test_binding_on_loopback_alone_is_not_ready(stack: Stack, mode: str) -> None:
    args = ["udp", "127.0.0.1", port_name(mode)]
    session = stack.start(image=f"binder-{mode}", args=args)["id"]
    bind(stack, session)
    assert not is_bound(stack, session)
    assert ready_time(stack, session) is None
    stack.end(session)


def test_answer_names_the_ports_that_were_not_bound_and_those_that_were(stack: Stack) -> None:
    wrong = [{"requested": TCP_PORT, "protocol": "udp", "tls": False}]
    stack.make_game(f"{APPLICATION}-wrong", repository=APPLICATION, ports=wrong)
    others = f"udp/{UDP_PORT}, tcp/{TCP_PORT}"
    expected = f"not bound in time: udp/{TCP_PORT} was not bound; {others} were"
    assert until_late(stack, expected, image=f"{APPLICATION}-wrong").endswith(expected)


def test_in_the_hosts_network_only_its_own_processes_count(stack: Stack) -> None:
    args = ["udp", "0.0.0.0", port_name("host")]
    first, second = (stack.start(image="binder-host", args=args)["id"] for _ in range(2))
    bind(stack, first)
    assert is_bound(stack, first)
    assert not is_bound(stack, first, of=second)
    for each in (first, second):
        stack.end(each)


def test_games_with_thousands_of_sockets_do_not_delay_neighbours(stack: Stack) -> None:
    """Two are never ready: one lacks its port, one has too many sockets."""
    ids = []
    for sockets in ("6000", "12000"):
        args = ["--many", sockets, "udp", "0.0.0.0", str(UDP_PORT)]
        ids.append(stack.start(image="binder-bridge", args=args)["id"])
        until_said(container_of(stack, ids[-1]), "waits")
    answer = start_when_ready(stack, 30, id="neighbour").expect(201)
    assert answer.headers["preference-applied"] == "wait=ready"
    with pytest.raises(TooManySocketsError):
        is_bound(stack, ids[1])
    assert not is_bound(stack, ids[0])
    bind(stack, ids[0])
    eventually(lambda: ready_time(stack, ids[0]) is not None, "the agent has seen it")
    for each in (*ids, "neighbour"):
        stack.end(each)


@pytest.mark.parametrize(
    "image",
    [
        APPLICATION,
        f"{APPLICATION}-host",
    ],
)
def test_player_reaches_ready_session(stack: Stack, image: str) -> None:
    """The first datagram is answered, without a resend."""
    args = ["--open-port-late", "0.7"] + (["--ports-from-env"] if image.endswith("host") else [])
    answer = start_when_ready(stack, 60, image=image, args=args, id=image)
    assert answer.status == 201, (answer.body, stack.client.get("/logs", id=image).body)
    assert answer.headers["preference-applied"] == "wait=ready"
    made = answer.json()
    ports = {port["container"]: port["host"] for port in made["ports"]}
    assert tcp_greeting(made["host"], ports[TCP_PORT]) == f"demo game {made['id']}"
    play_round(made)
    assert stack.record(made["id"])["ready_time"] >= game_began(stack, image) + 0.6
    for phase in ("queue", "create", "start", "ready"):
        assert phase_count(stack, phase) >= 1, phase
    stack.end(made["id"])


def phase_count(stack: Stack, phase: str) -> float:
    """The number of starts that the agent has timed in a phase."""
    address = stack.agent.settings["metrics_listen"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        scrape = Scrape(text_string_to_metric_families(answer.read().decode()))
    return scrape("start_phase_duration_seconds_count", kind="cold", phase=phase) or 0.0


def test_session_that_is_not_ready_in_time_is_ended(stack: Stack) -> None:
    answer = start_when_ready(stack, 1, args=["--open-port-late", "1000"], id="never")
    assert "not bound in time" in answer.expect(504).json()["details"]
    assert stack.status("never") == "exited"
    record = stack.record("never")
    assert record["end_reason"] == "stopped"
    assert record["ready_time"] is None
    pid = int(container_of(stack, "never").attrs["State"]["Pid"])
    assert not pid or live_process(pid) is None


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_restarted_agent_sees_later_binding(stack: Stack, mode: str) -> None:
    args = ["udp", "::", port_name(mode)]
    session = stack.start(image=f"binder-{mode}", args=args)["id"]
    stack.restart_agent()
    bind(stack, session)
    eventually(lambda: ready_time(stack, session) is not None, "the agent has seen it")
    stack.until(session, "running")
    stack.end(session)
