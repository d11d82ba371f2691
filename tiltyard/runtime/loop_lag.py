"""The lag of the event loop, which delays everything in the program."""

import asyncio
from collections.abc import Callable

INTERVAL_SECONDS = 0.25
"""Between two looks: what holds the loop up for longer is seen, but for this much of it."""


async def watch(observe: Callable[[float], object]) -> None:
    """Observe by how many seconds a timer was late, again and again, for ever."""
    now = asyncio.get_running_loop().time
    while True:
        due = now() + INTERVAL_SECONDS
        await asyncio.sleep(INTERVAL_SECONDS)
        observe(max(0.0, now() - due))
