"""The log of a fake agent's session, which tests write to while it is followed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from tiltyard.agent.v1 import agent_pb2
from tiltyard.runtime.tasks import first_completed


class FakeLog:
    """Parts of a log; `is_cut`: its offsets are unknown. `ended` ends its followers."""

    def __init__(self) -> None:
        self.is_cut = False
        self.ended = asyncio.Event()
        self._printed = asyncio.Event()

    def write(self, parts: list[bytes], data: bytes) -> None:
        """Add a part, which followers see."""
        parts.append(data)
        self._printed.set()
        self._printed = asyncio.Event()

    async def read(
        self,
        parts: Iterable[bytes],
        request: agent_pb2.StreamLogsRequest,
        then: Callable[[], Awaitable[object]],
    ) -> AsyncIterator[agent_pb2.StreamLogsResponse]:
        """Yield what there is, from the requested offset; `then`, and what follows."""
        begin = 0
        if request.HasField("offset"):
            if self.is_cut:
                yield agent_pb2.StreamLogsResponse()
            else:
                begin = min(request.offset, sum(map(len, parts)))
                yield agent_pb2.StreamLogsResponse(offset=begin)
                if begin < request.offset:
                    return
        count = 0
        for data in parts:
            count += 1
            if rest := data[begin:]:
                yield agent_pb2.StreamLogsResponse(data=rest)
            begin = max(0, begin - len(data))
        await then()
        while request.follow and not self.ended.is_set():
            for data in list(parts)[count:]:
                count += 1
                yield agent_pb2.StreamLogsResponse(data=data)
            await first_completed(self._printed.wait(), self.ended.wait(), "followed-log")
