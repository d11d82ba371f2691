"""F44: five hundred concurrent starts through both programs, with an engine in memory."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.plugin import Figure
from tests.flow.whole import Whole
from tests.support.controlplane.system import assert_error, eventually

CALLERS = 500
BURST = 50
QUEUE = 50
"""Fewer than the connections of a client."""
# Longer than any machine takes to refuse all others, during which the first start is held.
PATIENT = {"start_timeout": 60.0}
UNLIMITED = {"start_rate": 1e6, "start_burst": 10**6, **PATIENT}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "served"),
    [
        ({"start_rate": 0.01, "start_burst": BURST, **PATIENT}, BURST),
        ({**UNLIMITED, "max_waiting_starts": QUEUE}, 1 + QUEUE),
        (UNLIMITED, CALLERS),
    ],
    ids=["too many for the account", "too many for the queue", "not too many"],
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
        running = sorted((one, "running") for one in started)
        await whole.until(
            "/session",
            lambda shown: (
                sorted((each["id"], each["status"]) for each in shown["sessions"]) == running
            ),
        )
        ports = [port["host"] for a in answers if a.status == 201 for port in a.json["ports"]]
        await eventually(lambda: len(whole.host.live) == len(started))  # unknown ones are stopped
        assert max(Counter(ports).values()) <= 2  # tcp and udp are separate spaces
        stops = await asyncio.gather(*(whole.call("DELETE", f"/session/{s}") for s in started))
        assert {stop.status for stop in stops} == {204}
