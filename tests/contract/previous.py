"""An agent of an earlier version: today's, seen through the contract that was released then.

Methods that came later are UNIMPLEMENTED. Fields that came later are dropped from what it is
asked, which it could not know, and from what it answers, which it would not say.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.contract.byte_proxy import SERVICE, ByteProxy
from tests.flow.whole import Whole
from tests.support.agent.served import WholeAgent


class Contract:
    """The messages of a set of descriptors, apart from those that this program was built with."""

    def __init__(self, files: FileDescriptorSet) -> None:
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        self.methods = {method.name: method for method in pool.FindServiceByName(SERVICE).methods}

    def request(self, method: str, data: bytes) -> Any:
        """Read a request."""
        return _read(self.methods[method].input_type, data)

    def response(self, method: str, data: bytes) -> Any:
        """Read a response."""
        return _read(self.methods[method].output_type, data)


class Previous(ByteProxy):
    """Stands between a control plane and an agent, and lets through what a contract has."""

    def __init__(self, target: str, files: FileDescriptorSet) -> None:
        super().__init__(target)
        self.contract = Contract(files)
        self.unknown: set[str] = set()  # Methods that were asked for and came later

    def knows(self, method: str) -> bool:
        if method not in self.contract.methods:
            self.unknown.add(method)
        return method in self.contract.methods

    def asked(self, method: str, request: bytes) -> bytes:
        return _known(self.contract.request(method, request))

    def answered(self, method: str, response: bytes) -> bytes:
        return _known(self.contract.response(method, response))


def _read(kind: Descriptor, data: bytes) -> Any:
    return message_factory.GetMessageClass(kind).FromString(data)


def _known(message: Any) -> bytes:
    message.DiscardUnknownFields()
    data: bytes = message.SerializeToString(deterministic=True)
    return data


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
