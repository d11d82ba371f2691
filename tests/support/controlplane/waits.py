"""Conditions inside of a control plane that tests wait for."""

import asyncio
import re
from collections.abc import Collection
from typing import Any

from controlplane.domain.errors import StoppedDuringStartError
from controlplane.sessions.under_way import Start
from tests.support.controlplane.system import System, eventually
from tests.support.tasks import waits_at

_AWAITS_REQUESTS = re.compile(r"\bclose \(edge\.py:\d+\) > wait ")


async def until_requests_are_awaited(system: System) -> None:
    """Wait until a shutdown accepts no more, and waits for the requests in progress."""
    serving = system._serving
    assert serving is not None

    def is_waiting() -> bool:
        assert not serving.done(), "the shutdown has ended"
        return _AWAITS_REQUESTS.search(waits_at(serving)) is not None

    await eventually(is_waiting)


async def until_held_up(system: System, calls: Collection[asyncio.Task[Any]]) -> None:
    """Wait until each of these calls waits for hosts to report; no other call may wait."""
    unreported = system.control_plane.fleet.unreported
    queue = system.control_plane.starts.queue

    def are_waiting() -> bool:
        done = [call.result().text for call in calls if call.done()]
        assert not done, done
        return len(unreported._waits) + sum(queue.waiting().values()) == len(calls)

    await eventually(are_waiting)


async def until_called_off(system: System, session_id: str = "x") -> None:
    """Wait until a DELETE waits for a start of alice that is under way."""
    start = system.control_plane.starts.under_way.get("alice", session_id)
    assert start is not None
    await eventually(lambda: _is_called_off(start))


def _is_called_off(start: Start) -> bool:
    try:
        start.check()
    except StoppedDuringStartError:
        return True
    return False
