"""A storm: five thousand starts at once on two hundred hosts that have room for fewer."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from controlplane.app.control_plane import ControlPlane
from controlplane.http.edge import Limits
from controlplane.http.request_slots import RequestSlots
from tests.flow import storm_callers
from tests.flow.storm_callers import Outcome
from tests.support.controlplane.fake_agent import FakeAgent, refuse
from tests.support.controlplane.system import System, eventually
from tiltyard.runtime.clock import SystemClock

HOSTS, SLOTS, ROOM = 200, 4, 20
CALLERS = 5000
ACCOUNTS = ("alice", "bob")
SECONDS = 0.05
"""What a start takes on a host."""


class Host(FakeAgent):
    """Admits as an agent does: limited sessions and concurrent starts."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self.host.start_slots, self.host.free_sessions = SLOTS, ROOM
        self.refusals: Counter[str] = Counter()
        self.most = 0
        self._admitted = 0
        self.before_start = self._take

    async def _take(self, _: Any, context: Any) -> None:
        reason = ""
        if self.starts_in_flight > SLOTS:
            reason = "START_QUEUE_FULL"
        elif self._admitted == ROOM:
            reason = "NO_CAPACITY"
        if reason:
            self.refusals[reason] += 1
            await refuse(context, reason)
        self._admitted += 1
        await asyncio.sleep(SECONDS)


class Storm(System):
    """Two hundred such hosts, and a control plane that lets every caller connect and wait."""

    def __init__(self, folder: Path) -> None:
        never = {"start_rate": 1e6, "start_burst": 10**6, "start_timeout": 120.0}
        everybody = {"max_connections": 2 * CALLERS, "max_connections_per_address": 2 * CALLERS}
        # The hosts share a process with the control plane: on a slow machine they beat late.
        patient = {"placement_silence": 120.0, "unreachable_after": 240.0}
        super().__init__(folder, agents=0, **never, **everybody, **patient)
        self.hosts = [Host(folder, f"a{number}") for number in range(HOSTS)]
        self.agents = list(self.hosts)

    def make_control_plane(self) -> ControlPlane:
        slow = Limits(header=300.0, body=300.0, idle=300.0)  # a connection waits for all others
        turns = RequestSlots(SystemClock(), most_waiting=CALLERS)
        return ControlPlane(self.config, limits=slow, request_slots=turns)

    async def start_all(self) -> list[Outcome]:
        """Have every caller start a session at the same time."""
        callers = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            storm_callers.__name__,
            self.control_plane.base_url,
            str(CALLERS),
            stdin=PIPE,
            stdout=PIPE,
        )
        try:
            told, _ = await callers.communicate(json.dumps(self.tokens).encode())
        finally:
            if callers.returncode is None:
                callers.kill()
                await callers.wait()
        return [Outcome(*each) for each in json.loads(told)]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_nobody_is_refused_while_a_host_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is: what is given up keeps its place on the host for a while.
    monkeypatch.setattr("controlplane.sessions.start.CALL_SHARE", 1.0)
    monkeypatch.setattr("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", 120.0)
    async with Storm(tmp_path) as storm:
        await storm.make_application(reservation={"cpu": 0.1, "ram": 1})
        await storm.make_application(account="bob", reservation={"cpu": 0.1, "ram": 1})
        outcomes = await storm.start_all()
        started = Counter(each.account for each in outcomes if each.status == 201)
        refused = [each for each in outcomes if each.status != 201]
        refusals = sum((host.refusals for host in storm.hosts), Counter())
        why = Counter((each.status, each.details) for each in refused), refusals
        assert started.total() == HOSTS * ROOM, why
        assert min(started[account] for account in ACCOUNTS) >= HOSTS * ROOM // 3
        assert {each.status for each in refused} == {420}
        assert all("no host has room" in each.details for each in refused), why
        assert min(each.retry_after for each in refused) >= 1
        assert {len(host.live) for host in storm.hosts} == {ROOM}
        assert max(host.most_starts_in_flight for host in storm.hosts) <= SLOTS
        assert refusals.total() < HOSTS * ROOM / 100, refusals
        links = storm.control_plane.fleet.hosts
        await eventually(lambda: not any(link.in_flight for link in links))
