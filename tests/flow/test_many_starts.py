"""Very many concurrent starts; F44 takes them through both programs, with an engine in memory."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from controlplane.domain.placement.placement import has_room
from tests.faults.plugin import Figure
from tests.flow.whole import Whole
from tests.support.controlplane.system import System, assert_error, eventually
from tests.support.hold import Hold

CALLERS = 500
BURST = 50
QUEUE = 50  # Fewer than the connections of a client
SHARE = QUEUE // 2  # Of the queue, for an account that is alone
# Longer than any machine takes to refuse all others, during which the first start is held.
PATIENT: dict[str, Any] = {"start_timeout": 60.0}
UNLIMITED: dict[str, Any] = {"start_rate": 1e6, "start_burst": 10**6, **PATIENT}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "served"),
    [
        pytest.param(
            {"start_rate": 0.01, "start_burst": BURST, **PATIENT},
            BURST,
            id="too many for the account",
        ),
        pytest.param(
            {**UNLIMITED, "max_waiting_starts": QUEUE}, 1 + SHARE, id="too many for the queue"
        ),
        pytest.param(UNLIMITED, CALLERS, id="not too many", marks=pytest.mark.thorough),
    ],
)
async def test_f44_five_hundred_starts_at_once_are_sessions_or_a_420(
    tmp_path: Path, settings: dict[str, Any], served: int, figure: Figure
) -> None:
    room = {"cpu": 1000, "ram": 2**20, "start_slots": 1}
    async with Whole(tmp_path, agent=room, **settings) as whole:
        await whole.make_game()
        whole.engine.hold("start")  # until all others are refused
        starts = [
            asyncio.create_task(whole.start(id=f"{n}"), name="start") for n in range(CALLERS)
        ]
        await eventually(lambda: sum(start.done() for start in starts) == CALLERS - served)
        whole.engine.release("start")
        answers = await asyncio.gather(*starts)
        assert sum(answer.status == 201 for answer in answers) == served
        figure("started", f"{served} of {CALLERS}")
        for answer in answers:
            if answer.status != 201:
                assert_error(answer, 420)
                assert int(answer.headers["Retry-After"]) >= 1
        # Exactly the answered sessions run; releasing may take longer than a caller waits.
        started = {answer.json["id"] for answer in answers if answer.status == 201}
        running = sorted((session_id, "running") for session_id in started)
        await whole.until(
            "/session",
            lambda shown: (
                sorted((each["id"], each["status"]) for each in shown["sessions"]) == running
            ),
        )
        ports = [
            port["host"]
            for answer in answers
            if answer.status == 201
            for port in answer.json["ports"]
        ]
        await eventually(lambda: len(whole.host.live) == len(started))  # unknown ones are stopped
        assert max(Counter(ports).values()) <= 2  # tcp and udp are separate spaces
        stops = await asyncio.gather(
            *(whole.call("DELETE", f"/session/{session_id}") for session_id in started)
        )
        assert {stop.status for stop in stops} == {204}


async def test_identical_starts_that_wait_are_compared_with_a_host_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each report of a host would block the event loop for longer, the more wait."""
    compared = []

    def counted(*arguments: Any) -> bool:
        compared.append(arguments)
        return has_room(*arguments)

    async with System(tmp_path, **UNLIMITED) as system:
        await system.make_application(reservation={"cpu": 0.1, "ram": 1})
        system.agent.change_host(start_slots=0)
        await system.has_reported(system.agent.name, start_slots=0)
        starts = [asyncio.create_task(system.start(), name="start") for _ in range(QUEUE)]
        queue = system.control_plane.starts.queue
        await eventually(lambda: sum(queue.waiting().values()) == QUEUE)
        begun = system.agent.before_start = Hold()
        monkeypatch.setattr("controlplane.fleet.fleet.has_room", counted)
        system.agent.change_host(start_slots=1)
        await begun.reached.wait()
        assert 1 <= len(compared) < QUEUE / 2  # one for the report, others for periodic checks
        begun.set()
        answers = await asyncio.gather(*starts)
        assert {answer.status for answer in answers} == {201}
