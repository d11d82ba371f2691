"""A gate for a scripted step."""

import asyncio
from collections.abc import Callable
from typing import Any

LIMIT = 60.0  # Seconds after which a blocked call fails, so that a failing test ends


class Hold(asyncio.Event):
    """Blocks every call until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()  # Set once a call has been blocked

    async def __call__(self, *_: object) -> None:
        self.reached.set()
        async with asyncio.timeout(LIMIT):
            await self.wait()


def held_before(owner: object, name: str, when: Callable[..., bool] = lambda *_: True) -> Hold:
    """Block calls of an object's method before they do anything, if `when` accepts them.

    The method stays replaced as long as the object lives.
    """
    gate = Hold()
    method = getattr(owner, name)

    async def held(*arguments: Any, **named: Any) -> Any:
        if when(*arguments):
            await gate()
        return await method(*arguments, **named)

    setattr(owner, name, held)
    return gate
