"""A gate for a scripted step."""

import asyncio


class Hold(asyncio.Event):
    """Blocks every call until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        """Set once a call has been blocked."""

    async def __call__(self, *_: object) -> None:
        self.reached.set()
        await self.wait()
