"""Measures the lag of the event loop."""

import asyncio
from collections.abc import Callable

INTERVAL_SECONDS = 0.25  # Sampling interval: of a longer block, at most this much is missed


async def watch(observe: Callable[[float], object]) -> None:
    """Repeatedly observe by how many seconds a timer was late, forever."""
    now = asyncio.get_running_loop().time
    while True:
        due = now() + INTERVAL_SECONDS
        await asyncio.sleep(INTERVAL_SECONDS)
        observe(max(0.0, now() - due))
