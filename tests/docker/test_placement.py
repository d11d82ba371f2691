"""Placement on real hosts, and its explanation for operators."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.docker.remote_hosts import (
    BOTH_WAYS,
    MARKS,
    SHORT_TIMEOUTS,
    TAG,
    Fleet,
    Machines,
    RemoteHost,
    a_fleet,
)
from tests.docker.stack import eventually, udp_port_of
from tests.support.api_client import Answer, ApiClient
from tests.support.deployment import APPLICATION, REGION, application, enable_tag

pytestmark = MARKS

STARTS = 4
WAITING = 16
LATE = 3


def explained(fleet: Fleet, **asked: Any) -> dict[str, Mapping[str, Any]]:
    """The explanation for each host, by name."""
    query = {"account": "default", "image": APPLICATION, "location": REGION, **asked}
    answer = fleet.control_plane.operator.get("/operator/placement", **query).expect(200)
    return {host["agent"]: host for host in answer.json()["hosts"]}


def firsts(fleet: Fleet) -> set[str]:
    """The equally ranked first hosts for the next session."""
    return {name for name, host in explained(fleet).items() if host["rank"] == 1}


def obstacles(fleet: Fleet, name: str, **asked: Any) -> set[str]:
    return {each["kind"] for each in explained(fleet, **asked)[name]["obstacles"]}


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        ("packed", [4]),
        ("spread", [2, 2]),
    ],
)
def test_sessions_are_placed_as_explained(
    machines: Machines, strategy: str, shares: list[int]
) -> None:
    # Without latency, which may change between explanation and placement.
    with a_fleet(*machines, latency_interval=0.0) as fleet:
        operator = fleet.control_plane.operator
        pool = {"strategy": strategy}
        operator.put("/operator/node-pool/default", pool).expect(204)
        taken: list[str] = []
        for _ in range(STARTS):
            expected = firsts(fleet)
            taken.append(fleet.host_of(fleet.start()).name)
            assert taken[-1] in expected
        assert sorted(map(taken.count, set(taken))) == shares
        fleet.everything_runs_once()


@contextmanager
def drained(fleet: Fleet, host: RemoteHost) -> Iterator[None]:
    fleet.operator.run("agent", "drain", host.name)
    yield
    fleet.operator.run("agent", "undrain", host.name)


def unresponsive(_: Fleet, host: RemoteHost) -> AbstractContextManager[None]:
    return host.cut_off(BOTH_WAYS)


@contextmanager
def without_engine(_: Fleet, host: RemoteHost) -> Iterator[None]:
    host.machine.engine.stop()
    yield
    host.machine.engine.start()


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        pytest.param(drained, "draining", marks=pytest.mark.thorough),
        (unresponsive, "unresponsive"),
        pytest.param(without_engine, "engine_unavailable", marks=pytest.mark.thorough),
    ],
)
def test_obstacle_is_explained_and_the_session_placed_elsewhere(
    machines: Machines,
    trouble: Callable[[Fleet, RemoteHost], AbstractContextManager[None]],
    kind: str,
) -> None:
    with a_fleet(*machines, **SHORT_TIMEOUTS) as fleet:
        full = fleet.host_of(fleet.start())
        assert firsts(fleet) == {full.name}
        other = fleet.other_than(full)
        with trouble(fleet, full):
            eventually(lambda: obstacles(fleet, full.name) == {kind}, "the obstacle is reported")
            assert firsts(fleet) == {other.name}
            assert fleet.host_of(fleet.start()) is other
        eventually(lambda: not obstacles(fleet, full.name), "it takes sessions again")
        fleet.everything_runs_once()


def test_session_is_placed_on_the_host_with_the_free_port(machines: Machines) -> None:
    with a_fleet(*machines) as fleet:
        first = fleet.start()
        port = udp_port_of(first)
        asked = {"ports[7777/udp]": port}
        full = fleet.host_of(first)
        other = fleet.other_than(full)
        assert obstacles(fleet, full.name, **asked) == {"port_taken"}
        pins = [{"container": 7777, "host": port, "type": "udp"}]
        assert fleet.host_of(fleet.start(ports=pins)) is other
        for host in (full, other):
            assert obstacles(fleet, host.name, **asked) == {"port_taken"}
        assert int(fleet.try_to_start(ports=pins).expect(420).headers["retry-after"]) >= 1


def test_hosts_are_not_overcommitted(machines: Machines) -> None:
    with a_fleet(*machines, agent={"cpu": 1}) as fleet:
        fleet.make_game("half", reservation={"cpu": 0.5, "ram": 32})
        with ThreadPoolExecutor(2 * STARTS) as callers:
            calls = [callers.submit(fleet.try_to_start, image="half") for _ in range(2 * STARTS)]
        assert sorted(call.result().status for call in calls) == [201] * 4 + [420] * 4
        for host in fleet.hosts.values():
            assert obstacles(fleet, host.name, image="half") == {"cpu"}
            assert len(host.games()) == 2


@pytest.mark.thorough
def test_accounts_alternate_for_the_start_slots_of_a_host(machines: Machines) -> None:
    [machine, *_], registry = machines
    with a_fleet([machine], registry, agent={"start_slots": 1}, start_timeout=60.0) as fleet:
        other = fleet.control_plane.client("other")
        other.post("/application", application()).expect(201)
        enable_tag(other, APPLICATION, TAG)
        asked = {"location": REGION, "image": APPLICATION}

        def ask(session_id: str) -> Answer:
            client = other if session_id.startswith("late") else fleet.client
            body = {**asked, "id": session_id}
            return client.request("POST", "/session", body=body, timeout=90).expect(201)

        with ThreadPoolExecutor(WAITING + LATE) as callers:
            with machine.engine.hanging():  # the first holds the slot until all are queued
                calls = [callers.submit(ask, f"early-{number}") for number in range(WAITING)]
                eventually(lambda: known(fleet.client) == WAITING, "those are in the line")
                calls += [callers.submit(ask, f"late-{number}") for number in range(LATE)]
                eventually(lambda: known(other) == LATE, "the others are queued")
            for each in calls:
                each.result()
        order = begun(fleet)
        # After the first, they get every second slot.
        assert max(order.index(f"late-{number}") for number in range(LATE)) <= 2 * LATE, order
        assert order[-1].startswith("early")


def known(client: ApiClient) -> int:
    """The number of sessions of an account, including waiting starts."""
    return len(client.sessions(all="true"))


def begun(fleet: Fleet) -> list[str]:
    """Ids of all sessions with containers, in order of creation."""
    [host] = fleet.hosts.values()
    sessions = sorted(host.watched.sessions(), key=lambda each: each.create_time)
    return [each.spec.identity.session_id for each in sessions]
