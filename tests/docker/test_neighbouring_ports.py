"""Neighbouring ports, and ports that a game binds under their host's number, on a real engine."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo_game import TCP_PORT, UDP_PORT, Image, compiled
from tests.demo_game.player import tcp_greeting, udp_round_trip
from tests.docker.stack import Stack, a_stack, environment_of, eventually, play_round
from tests.docker.test_prepared import until_kept
from tests.docker.test_readiness import SOURCE, container_of, until_late, until_said
from tests.support.deployment import APPLICATION
from tests.support.pushed_image import push_image

FOUR = [
    {"requested": number, "protocol": "udp", "tls": False}
    for number in range(UDP_PORT, UDP_PORT + 4)
]
SAME = [
    {"requested": UDP_PORT, "protocol": "udp", "tls": False, "same": True},
    {"requested": TCP_PORT, "protocol": "tcp", "tls": False, "same": True},
]
READY = {"Prefer": "wait=ready; wait=20"}


@pytest.fixture(scope="module")
def stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    push_image(demo_image.address, "binder", program=compiled(SOURCE).read_bytes())
    with a_stack(docker_engine, demo_image) as made:
        made.make_game("four", repository="binder", ports=FOUR, contiguous=True)
        made.make_game("alone", repository="binder", ports=FOUR[:1])
        made.make_game("same", ports=SAME, contiguous=True)
        yield made


def hosts_of(made: dict[str, Any]) -> list[int]:
    return [port["host"] for port in made["ports"]]


def test_four_udp_ports_are_neighbours_between_others(stack: Stack) -> None:
    first = stack.start(image="alone")
    [taken] = hosts_of(first)
    # The next ports in the queue are no neighbours any more.
    pinned = stack.start(image="alone", ports=[{"container": UDP_PORT, "host": taken + 3}])
    args = [word for port in FOUR for word in ("udp", "0.0.0.0", str(port["requested"]))]
    made = stack.start(image="four", args=args)
    assert [port["container"] for port in made["ports"]] == [7777, 7778, 7779, 7780]
    assert hosts_of(made) == list(range(taken + 4, taken + 8))
    container = container_of(stack, made["id"])
    until_said(container, "waits")
    container.kill(signal.SIGUSR1)
    until_said(container, "bound")
    for port in hosts_of(made):
        udp_round_trip(made["host"], port)
    described = stack.client.get(f"/session/{made['id']}").expect(200).json()
    assert described["port"] == {
        f"{number}/udp": host for number, host in enumerate(hosts_of(made), UDP_PORT)
    }
    for each in (first, pinned, made):
        stack.end(each["id"])


def test_game_is_reached_at_the_port_that_it_binds(stack: Stack) -> None:
    made = stack.try_to_start(READY, image="same", args=["--ports-from-env"]).expect(201).json()
    assert [port["container"] for port in made["ports"]] == [UDP_PORT, TCP_PORT]
    [udp, tcp] = hosts_of(made)
    assert tcp == udp + 1
    play_round(made)
    assert made["id"] in tcp_greeting(made["host"], tcp)
    container = container_of(stack, made["id"])
    assert environment_of(container)[f"TILTYARD_PORT_UDP_{UDP_PORT}"] == str(udp)
    published = container.attrs["HostConfig"]["PortBindings"]
    assert set(published) == {f"{udp}/udp", f"{tcp}/tcp"}
    stack.end(made["id"])


def test_game_that_binds_the_named_port_is_not_ready(stack: Stack) -> None:
    end = f"not bound; udp/{UDP_PORT}, tcp/{TCP_PORT} were"
    details = until_late(stack, end, image="same")
    assert f"udp/{UDP_PORT} (host port " in details
    assert details.endswith(end)


def test_restarted_game_keeps_its_ports(stack: Stack) -> None:
    made = stack.start(image="same", args=["--ports-from-env"], restart=True)
    play_round(made)
    container_of(stack, made["id"]).kill(signal.SIGKILL)
    eventually(lambda: stack.record(made["id"])["restart_count"] == 1, "it is restarted")
    play_round(made)
    described = stack.client.get(f"/session/{made['id']}").expect(200).json()
    assert list(described["port"].values()) == hosts_of(made)
    stack.end(made["id"])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ports": [SAME[1] | {"tls": True}]}, "ports[0].same"),
        ({"ports": [SAME[0] | {"same": "yes"}]}, "ports[0].same"),
        ({"contiguous": 1}, "contiguous"),
    ],
)
def test_bad_combination_is_refused(stack: Stack, changes: dict[str, object], field: str) -> None:
    answer = stack.client.request("PUT", "/application/same", body=changes)
    violations = answer.expect(422).json()["violations"]
    assert [violation["field"] for violation in violations] == [field]


def test_prepared_container_has_neighbours_that_its_game_binds(
    docker_engine: Path, demo_image: Image
) -> None:
    with a_stack(docker_engine, demo_image, prepared=4) as stack:
        changes = {"ports": SAME, "contiguous": True}
        stack.client.request("PUT", f"/application/{APPLICATION}", body=changes).expect(204)
        eventually(lambda: f"{UDP_PORT}/udp" not in _published(stack), "it is replaced")
        until_kept(stack)
        made = stack.try_to_start(READY, args=["--ports-from-env"]).expect(201).json()
        [udp, tcp] = hosts_of(made)
        assert tcp == udp + 1
        play_round(made)
        stack.end(made["id"])
        assert stack.report(made["id"])["prepared"] is True


def _published(stack: Stack) -> set[str]:
    """The ports that prepared containers publish; without any, the name of the UDP port."""
    found = [each.attrs["HostConfig"]["PortBindings"] for each in stack.prepared_containers()]
    return {name for ports in found for name in ports} if found else {f"{UDP_PORT}/udp"}
