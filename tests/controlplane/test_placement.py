"""Placement: a table of what excludes a host, and the order of those that are left."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from controlplane.fleet.contract import Host, PortRequest, Protocol, Resources
from controlplane.fleet.placement import HostView, Strategy, Wanted, has_room, rank_hosts

IMAGE = "r/game@sha256:0"
TCP, UDP = Protocol.TCP, Protocol.UDP
HOST = Host(
    agent_id="h",
    version="0",
    public_address="192.0.2.1",
    latency_addresses=(),
    capacity=Resources(10, 10, 1),
    reserved=Resources(),
    free_sessions=5,
    port_range_first=20000,
    port_range_last=30000,
    free_tcp_ports=5,
    free_udp_ports=5,
    images=frozenset({IMAGE}),
    tls=False,
    draining=False,
    engine_available=True,
    start_slots=2,
)
VIEW = HostView("h", HOST, silent_seconds=1.0)
WANTED = Wanted(IMAGE, Resources(2, 2), (PortRequest(1, UDP),))


def rank(
    views: list[HostView],
    wanted: Wanted = WANTED,
    strategy: Strategy = Strategy.PACKED,
    seed: int = 1,
) -> list[str]:
    ranked = rank_hosts(views, wanted, strategy=strategy, max_silence=5.0, random=Random(seed))
    return [view.agent for view in ranked]


def on(**changes: Any) -> HostView:
    return replace(VIEW, host=replace(HOST, **changes))


def pin(port: int, protocol: Protocol = UDP) -> Wanted:
    return replace(WANTED, ports=(PortRequest(1, protocol, pinned=port),))


@pytest.mark.parametrize(
    ("view", "wanted", "fits"),
    [
        (VIEW, WANTED, True),
        (replace(VIEW, silent_seconds=5.0), WANTED, True),
        (replace(VIEW, silent_seconds=5.1), WANTED, False),
        (on(draining=True), WANTED, False),
        (on(engine_available=False), WANTED, False),
        (on(images=frozenset()), WANTED, False),
        (on(free_sessions=0), WANTED, False),
        (replace(VIEW, in_flight=5), WANTED, False),
        (on(reserved=Resources(8, 8)), WANTED, True),
        (on(reserved=Resources(9, 0)), WANTED, False),
        (on(reserved=Resources(0, 9)), WANTED, False),
        (replace(VIEW, held=Resources(9, 0)), WANTED, False),
        (replace(VIEW, starting=1), WANTED, True),
        (replace(VIEW, starting=2), WANTED, False),
        (VIEW, replace(WANTED, reservation=Resources(1, 1, 1)), True),
        (VIEW, replace(WANTED, reservation=Resources(1, 1, 2)), False),
        (on(free_udp_ports=0), WANTED, False),
        (on(free_tcp_ports=0), WANTED, True),
        (VIEW, pin(20000), True),
        (VIEW, pin(30000), True),
        (VIEW, pin(19999), False),
        (VIEW, pin(30001), False),
        (replace(VIEW, used_ports={(UDP, 20000)}), pin(20000), False),
        (replace(VIEW, used_ports={(UDP, 20000)}), pin(20000, TCP), True),
        (VIEW, replace(WANTED, ports=(PortRequest(1, TCP, tls=True),)), False),
        (on(tls=True), replace(WANTED, ports=(PortRequest(1, TCP, tls=True),)), True),
    ],
)
def test_what_excludes_a_host(view: HostView, wanted: Wanted, fits: bool) -> None:
    assert rank([view], wanted) == (["h"] if fits else [])


def test_a_missing_start_slot_alone_may_free_up() -> None:
    assert has_room(replace(VIEW, starting=2), WANTED, 5.0)


def test_packed_fills_the_fullest_and_spread_the_emptiest() -> None:
    views = [replace(on(reserved=Resources(used, 0)), agent=str(used)) for used in (3, 8, 0, 5)]
    assert rank(views) == ["8", "5", "3", "0"]
    assert rank(views, strategy=Strategy.SPREAD) == ["0", "3", "5", "8"]


def test_what_is_in_flight_counts_as_full() -> None:
    views = [replace(VIEW, agent="a"), replace(VIEW, agent="b", held=Resources(1, 1))]
    assert rank(views) == ["b", "a"]


def test_latency_decides_between_equals_and_chance_after_it() -> None:
    views = [replace(VIEW, agent=str(ms), latency_ms=ms) for ms in (30.0, 10.0, 20.0)]
    views.append(replace(VIEW, agent="unknown"))
    assert rank(views) == ["10.0", "20.0", "30.0", "unknown"]
    equals = [replace(VIEW, agent=name) for name in "abc"]
    firsts = {rank(equals, seed=seed)[0] for seed in range(50)}
    assert firsts == {"a", "b", "c"}
