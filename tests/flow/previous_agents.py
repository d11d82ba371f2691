"""A control plane of today over an agent of an earlier version."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.contract.byte_proxy import ByteProxy
from tests.flow.whole import Whole
from tests.support.agent.served import WholeAgent


class Behind:
    """An agent that is reached through somebody; `stand_in` makes that one, given its address."""

    def __init__(self, agent: WholeAgent, stand_in: Callable[[str], ByteProxy]) -> None:
        self.agent = agent
        self.name = agent.name
        self.proxy = stand_in(agent.address)
        self._socket = agent.config.socket.with_suffix(".previous")
        self._stack = AsyncExitStack()

    @property
    def address(self) -> str:
        return f"unix:{self._socket}"

    @property
    def live(self) -> list[str]:
        return self.agent.live

    async def start(self) -> None:
        await self.agent.start()
        await self._stack.enter_async_context(self.proxy.serving(self._socket))

    async def stop(self) -> None:
        await self._stack.aclose()
        await self.agent.stop()


class WholeBehind(Whole):
    """Both programs, and somebody in between."""

    def __init__(self, folder: Path, stand_in: Callable[[str], ByteProxy], **more: Any) -> None:
        super().__init__(folder, **more)
        self.behind = Behind(self.host, stand_in)
        self.agents = [self.behind]  # type: ignore[list-item]  # it has what System asks of one
