"""A gate in place of a scripted step."""

import asyncio


class Hold(asyncio.Event):
    """Holds every call of it until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        """A call is held, or was."""

    async def __call__(self, *_: object) -> None:
        self.reached.set()
        await self.wait()
