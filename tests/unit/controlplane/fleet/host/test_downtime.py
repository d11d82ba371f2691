"""Downtime of a host while the database fails; see also tests/flow/test_unresponsive_hosts.py."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from controlplane.domain.errors import StoreError
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.written import Written as WrittenReports
from controlplane.fleet.host.downtime import LONGEST_GAP, WRITE_INTERVAL, Downtime
from controlplane.fleet.host.state import HostState
from controlplane.storage.tables.hosts.contact import note_downtime, note_report
from tests.support.fake_clock import FakeClock

LOST_AFTER = 3600.0


class Written:
    """A store that fails on demand and records its calls."""

    def __init__(self) -> None:
        self.fails = False
        self.asked: list[str] = []

    async def run(self, transaction: Callable[..., object], _: str, *args: Any) -> bool:
        if transaction is note_downtime:
            self.asked.append(f"downtime {int(args[0])}")
        else:
            self.asked.append("report" if transaction is note_report else "lost")
        if self.fails:
            raise StoreError("the disk is full")
        return True


class Listening:
    """The downtime of one host."""

    def __init__(self, **known: Any) -> None:
        self.clock = FakeClock()
        self.store = Written()
        row = Agent("h", "unix:/h", "local", "default", **known)
        self.host = HostState(row, cast("Any", None))
        self.downtime = Downtime(self.host, cast("Any", self.store), LOST_AFTER, self.clock)
        self.downtime.begin()

    async def miss(self, seconds: float) -> None:
        for _ in range(round(seconds / LONGEST_GAP)):
            self.clock.stall(LONGEST_GAP)
            await self.downtime.missed()


async def test_host_is_served_when_its_report_cannot_be_stored() -> None:
    host = Listening()
    host.store.fails = True
    for _ in range(4):
        await host.downtime.reported(WrittenReports())
        host.clock.stall(WRITE_INTERVAL / 2)
    assert host.store.asked == ["report", "report"]


@pytest.mark.parametrize(
    "known",
    [
        {"downtime": 60},
        {"downtime": 60, "lost": 1},
    ],
)
async def test_host_is_served_once_its_downtimes_end_is_stored(known: dict[str, int]) -> None:
    """Otherwise a crash might add its next downtime to that one."""
    host = Listening(**known)
    host.store.fails = True
    for _ in range(2):
        with pytest.raises(StoreError):
            await host.downtime.reported(WrittenReports())
    assert host.host.lost == known.get("lost")
    host.store.fails = False
    await host.downtime.reported(WrittenReports())
    assert host.host.lost is None
    await host.downtime.reported(WrittenReports())
    assert host.store.asked == ["report"] * 3


async def test_downtime_is_stored_once_a_minute_and_its_end_once() -> None:
    host = Listening()
    await host.downtime.reported(WrittenReports())
    await host.miss(LOST_AFTER)
    spans = range(int(WRITE_INTERVAL), int(LOST_AFTER), int(WRITE_INTERVAL))
    assert host.store.asked == ["report", *(f"downtime {span}" for span in spans), "lost"]
    assert host.host.lost == host.clock.time()
    await host.miss(LOST_AFTER)
    assert host.store.asked[-1] == "lost"
    assert host.store.asked.count("lost") == 1


async def test_failed_write_is_retried() -> None:
    host = Listening()
    host.store.fails = True
    await host.miss(2 * LOST_AFTER)
    asked = len(host.store.asked)
    host.store.fails = False
    await host.miss(2 * LONGEST_GAP)
    assert host.store.asked[asked:] == ["lost"]
    assert host.host.lost is not None
