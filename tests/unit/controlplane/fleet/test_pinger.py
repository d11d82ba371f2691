import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import WatchMessage
from controlplane.domain.hosts.host_latency import (
    MAX_ADDRESSES,
    MAX_LOOKED_AT,
    MAX_MISSES,
    HostLatency,
)
from controlplane.fleet.host.state import HostState
from controlplane.fleet.icmp import CannotPingError
from controlplane.fleet.pinger import AT_ONCE, JITTER, LOOK, Pinger
from tests.support.fake_clock import FakeClock
from tests.support.tasks import running
from tests.unit.controlplane.domain.placement.test_placement import HOST

NEAR = "192.0.2.1"
FAR = "192.0.2.2"
INTERVAL = 30.0
WHAT_FOLLOWS = "latency is not measured, hosts are not ranked by it"


def latency(*addresses: str) -> HostLatency:
    made = HostLatency()
    made.announce(addresses)
    return made


def test_has_no_latency_before_the_first_answer() -> None:
    assert latency(NEAR, FAR).seconds is None


def test_address_counts_as_responsive_until_three_misses() -> None:
    made = latency(NEAR, FAR)
    assert list(made.answering) == [NEAR, FAR]
    assert list(made.unresponsive) == []
    for _ in range(MAX_MISSES - 1):
        assert not made.note(FAR, None)
        assert list(made.answering) == [NEAR, FAR]
    assert made.note(FAR, None)
    assert list(made.answering) == [NEAR]
    assert list(made.unresponsive) == [FAR]
    assert made.note(FAR, None)  # a single miss is enough
    assert made.note(FAR, 5.0)
    assert made.seconds == 5.0
    assert list(made.answering) == [NEAR, FAR]
    assert list(made.unresponsive) == []
    for _ in range(MAX_MISSES - 1):  # the reply has reset the misses
        assert not made.note(FAR, None)


def test_latency_is_of_the_nearest_address_without_outliers() -> None:
    made = latency(NEAR, FAR)
    for ms in (8.0, 8.0, 80.0):
        made.note(NEAR, ms)
    made.note(FAR, 90.0)
    assert made.seconds == 8.0 + (80.0 - 8.0) / 4
    for _ in range(MAX_MISSES):
        made.note(NEAR, None)
    assert made.seconds == 90.0
    made.note(NEAR, 3.0)
    assert made.seconds == 3.0  # measurements before its failure are forgotten


def test_unchanged_address_keeps_its_measurements() -> None:
    made = latency(NEAR, FAR)
    made.note(NEAR, 4.0)
    made.note(FAR, 2.0)
    made.announce((NEAR, "192.0.2.3"))
    assert made.seconds == 4.0
    assert made.addresses == (NEAR, "192.0.2.3")
    assert made.note(FAR, 1.0)  # a late reply
    assert made.seconds == 4.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host.example",
        "::1",
        "2001:db8::1",
        "192.0.2.1/24",
        "192.0.2",
        "192.0.2.01",
        "224.0.0.1",
        "239.255.255.250",
        "255.255.255.255",
        "0.0.0.0",
        "240.0.0.1",
        "-I eth0",
    ],
)
def test_only_unicast_addresses_are_pinged(text: str) -> None:
    assert latency(text, NEAR).addresses == (NEAR,)


def test_only_the_first_addresses_are_pinged() -> None:
    many = tuple(f"192.0.2.{number}" for number in range(1, 200))
    assert latency(NEAR, *many).addresses == many[:MAX_ADDRESSES]
    assert latency(*[""] * MAX_LOOKED_AT, NEAR).addresses == ()


class Measured:
    """A pinger on hosts that have reported, with a fake clock and scripted replies.

    Addresses other than those of `answers` are unresponsive.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.hosts: list[SimpleNamespace] = []
        self.unresponsive: set[str] = set()
        self.answers: dict[str, float] = {}
        self.asked: dict[str, int] = defaultdict(int)
        self.hold = asyncio.Event()
        self.hold.set()
        self.under_way = self.most_under_way = 0
        self.refuses = ""
        fleet: Any = SimpleNamespace(
            hosts=self.hosts, is_responsive=lambda agent: agent not in self.unresponsive
        )
        self.pinger = Pinger(
            fleet, interval=INTERVAL, clock=self.clock, random=Random(1), ping=self.ping
        )

    async def ping(self, address: str, timeout: float) -> float | None:
        assert timeout == 1.0
        self.asked[address] += 1
        if self.refuses:
            raise CannotPingError(self.refuses)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.hold.wait()
        self.under_way -= 1
        return self.answers.get(address)

    def add(self, *addresses: str) -> HostState:
        row = Agent(f"a{len(self.hosts)}", "unix:/a", "local", "default")
        link = HostState(row, cast("Any", None))
        self.hosts.append(SimpleNamespace(name=link.name, state=link))
        self.report(link, *addresses)
        return link

    async def looks(self) -> None:
        """Let the pinger check once which hosts are due."""
        await self.clock.advance(LOOK)

    def report(self, link: HostState, *addresses: str) -> None:
        link.apply(WatchMessage("life", 1, replace(HOST, latency_addresses=addresses)), 0.0)


@pytest.fixture
async def measured() -> AsyncIterator[Measured]:
    made = Measured()
    async with running(made.pinger.run()):
        yield made


async def test_host_is_measured_at_its_report_and_once_per_interval(measured: Measured) -> None:
    measured.answers = {NEAR: 4.0}
    link = measured.add(NEAR)
    await measured.looks()
    assert link.latency.seconds == 4.0
    times = []
    for rounds in range(1, 5):
        while measured.asked[NEAR] < rounds:
            await measured.looks()
        times.append(measured.clock.monotonic())
    for before, after in pairwise(times[1:]):
        assert (1 - JITTER) * INTERVAL <= after - before <= (1 + JITTER) * INTERVAL + LOOK


async def test_unresponsive_address_is_ignored_until_it_replies(measured: Measured) -> None:
    measured.answers = {NEAR: 4.0, FAR: 9.0}
    link = measured.add(NEAR, FAR)
    await measured.looks()
    assert measured.asked == {NEAR: 1, FAR: 1}
    del measured.answers[NEAR]
    await measured.clock.advance(1.15 * INTERVAL)
    assert link.latency.unresponsive == (NEAR,)
    assert link.latency.seconds == 9.0
    assert measured.asked[NEAR] == 1 + MAX_MISSES
    await measured.clock.advance(1.15 * INTERVAL)
    assert measured.asked[FAR] == 3
    assert measured.asked[NEAR] == 2 + MAX_MISSES  # an unresponsive address costs one echo
    measured.answers[NEAR] = 3.0
    await measured.clock.advance(1.15 * INTERVAL)
    assert link.latency.answering == (NEAR, FAR)
    assert link.latency.seconds == 3.0


async def test_changing_addresses_cost_no_more_echoes(measured: Measured) -> None:
    link = measured.add("198.51.100.1")
    for number in range(2, 22):  # within one interval
        measured.report(link, *(f"198.51.100.{number + more}" for more in range(20)))
        await measured.looks()
    assert sum(measured.asked.values()) <= MAX_ADDRESSES * MAX_MISSES


async def test_concurrent_echoes_are_limited(measured: Measured) -> None:
    measured.hold.clear()
    for number in range(2 * AT_ONCE):
        address = f"198.51.100.{number}"
        measured.answers[address] = 1.0
        measured.add(address)
    await measured.looks()
    assert measured.under_way == AT_ONCE
    measured.hold.set()
    await measured.looks()
    assert all(host.state.latency.seconds == 1.0 for host in measured.hosts)
    assert measured.most_under_way == AT_ONCE


async def test_unresponsive_host_is_not_pinged(measured: Measured) -> None:
    measured.unresponsive.add("a0")
    measured.add(NEAR)
    await measured.looks()
    assert not measured.asked
    measured.unresponsive.clear()
    await measured.looks()
    assert measured.asked[NEAR] == MAX_MISSES


async def test_failure_to_ping_ignores_no_address_and_is_logged_once(
    measured: Measured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "controlplane.fleet.pinger")
    measured.answers = {NEAR: 4.0}
    link = measured.add(NEAR, FAR)
    await measured.looks()
    assert link.latency.unresponsive == (FAR,)
    measured.refuses = "nobody may"
    for _ in range(3):
        await measured.clock.advance(1.15 * INTERVAL)
    assert link.latency.seconds is None
    assert link.latency.answering == (NEAR, FAR)
    assert caplog.messages == [f"{WHAT_FOLLOWS} error=cannot measure latency: nobody may"]
    measured.refuses = ""
    await measured.clock.advance(1.15 * INTERVAL)
    recovered = link.latency
    assert recovered.seconds == 4.0
    assert caplog.messages[1:] == ["latency is measured again"]


async def test_interval_of_zero_measures_nothing() -> None:
    measured = Measured()
    measured.add(NEAR)
    measured.pinger.interval = 0.0
    async with running(measured.pinger.run()):
        await measured.looks()
    assert measured.asked == {}
