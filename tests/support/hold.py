"""A gate for a scripted step."""

import asyncio

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
