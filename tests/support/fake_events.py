"""The streams of events of a fake engine."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from tests.support.fake_container import FakeContainer


class FakeEvents:
    """Notifies each agent of changes of its sessions' containers."""

    def __init__(self) -> None:
        self._watchers: dict[asyncio.Queue[str | None], str] = {}

    def notify(self, held: FakeContainer) -> None:
        """Send the internal id of a container's session to the agent of the container."""
        for queue, agent_id in self._watchers.items():
            if agent_id == held.spec.agent_id and not held.spec.prepared:
                queue.put_nowait(held.spec.internal_id)

    def end_streams(self) -> None:
        for queue in self._watchers:
            queue.put_nowait(None)

    def watch(self, agent_id: str) -> asyncio.Queue[str | None]:
        """Begin to keep the events of an agent for `read`, until `forget`."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._watchers[queue] = agent_id
        return queue

    async def read(
        self, queue: asyncio.Queue[str | None], check: Callable[[], None]
    ) -> AsyncGenerator[str]:
        """Stream the events of a watcher; `check` is called at the end and may raise."""
        while (internal_id := await queue.get()) is not None:
            yield internal_id
        check()

    def forget(self, queue: asyncio.Queue[str | None]) -> None:
        del self._watchers[queue]
