"""An in-process network between a control plane and agents that drops, delays and duplicates.

`MemoryClient` is the control plane's client with a `Line` in place of gRPC. Messages are those of
the contract, and the handlers those of the agent.
"""

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NoReturn, cast

import grpc
from grpc.aio import AioRpcError, Metadata

from agent.rpc.service import AgentService
from controlplane.agent_rpc.client import AgentClient, Credentials, MakeTicket
from tests.flow.virtual_time import VirtualLoop

LATE = 3.0  # Seconds by which a delayed or duplicate request is late
SYN_SECONDS = 1.0  # Seconds after which a kernel retries to connect to an unresponsive host
BROKEN = 8.0  # Seconds after which a dead connection is detected


class Fate(enum.Enum):
    """The fate of a request on its line."""

    PASSED = enum.auto()
    LOST = enum.auto()
    ANSWER_LOST = enum.auto()
    DELAYED = enum.auto()
    DOUBLED = enum.auto()


class _AbortedError(Exception):
    """A handler has aborted its call."""

    def __init__(self, error: AioRpcError) -> None:
        super().__init__(error.details())
        self.error = error


class _Context:
    """The call context as far as handlers use it."""

    def peer(self) -> str:
        return "unix:"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: Any = ()
    ) -> NoReturn:
        raise _AbortedError(_error(code, details, trailing_metadata))


class Line:
    """The network path to one agent, for all callers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._service: AgentService | None = None
        self._program: object = None
        self._cut = False
        self._broken = loop.create_future()
        self.fates: deque[Fate] = deque()  # The fates of the next starts and stops

    def connect(self, service: AgentService, program: object) -> None:
        """Connect to an agent; its handlers run as tasks of `program`."""
        self._service = service
        self._program = program

    async def close(self) -> None:
        """Drop all messages in transit."""
        await self._loop.end(self)

    def disconnect(self) -> None:
        """Close the agent's end, so that its kernel resets connections."""
        self._service = None
        self._break()

    @property
    def is_cut(self) -> bool:
        """True while all messages are dropped."""
        return self._cut

    def cut(self) -> None:
        """Drop all messages silently."""
        self._cut = True

    def restore(self) -> None:
        """Pass new messages again; those in transit are lost."""
        if self._cut:
            self._cut = False
            self._break()

    async def call(self, method: str, request: Any, timeout: float) -> Any:
        """Make a unary call."""
        try:
            async with asyncio.timeout(timeout):
                return await self._call(method, request)
        except TimeoutError:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "too late") from None

    async def _call(self, method: str, request: Any) -> Any:
        if self._cut:
            await self._hang()
        fate = self.fates.popleft() if self.fates else Fate.PASSED
        if fate in {Fate.DELAYED, Fate.DOUBLED}:
            self._loop.spawn(self, self._deliver_late(method, request), f"late {method}")
        if fate in {Fate.LOST, Fate.DELAYED}:
            await self._hang()
        broken = self._broken
        handled = self._deliver(method, request)
        await asyncio.wait({handled, broken}, return_when=asyncio.FIRST_COMPLETED)
        if self.is_cut or fate is Fate.ANSWER_LOST:
            await self._hang()
        if not handled.done() or handled.cancelled():
            raise _unavailable()
        try:
            return handled.result()
        except _AbortedError as aborted:
            raise aborted.error from None

    async def watch(self, request: Any) -> AsyncIterator[Any]:
        """Follow the agent until the line breaks."""
        while self._cut:
            await asyncio.sleep(SYN_SECONDS)
        if self._service is None:
            raise _unavailable()
        broken = self._broken
        queue = asyncio.Queue[Any]()

        async def pump(handler: Any) -> None:
            async with aclosing(handler) as messages:
                async for message in messages:
                    if not self._cut and not broken.done():
                        queue.put_nowait(message)

        handler = self._service.Watch(request, cast("Any", _Context()))
        pumping = self._loop.spawn(self._program, pump(handler), "pump")
        try:
            while True:
                coming = asyncio.ensure_future(queue.get())
                try:
                    await asyncio.wait(
                        {coming, broken, pumping}, return_when=asyncio.FIRST_COMPLETED
                    )
                    if not coming.done():
                        raise _unavailable()
                    yield coming.result()
                finally:
                    coming.cancel()
        finally:
            pumping.cancel()

    def _deliver(self, method: str, request: Any) -> asyncio.Task[Any]:
        if self._service is None:
            raise _unavailable()
        handler = getattr(self._service, method)(request, _Context())
        task = self._loop.spawn(self._program, handler, method)
        # The caller may be gone.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _deliver_late(self, method: str, request: Any) -> None:
        await asyncio.sleep(LATE)
        if self._service is not None and not self._cut:
            self._deliver(method, request)

    async def _hang(self) -> NoReturn:
        await asyncio.sleep(BROKEN)
        raise _unavailable()

    def _break(self) -> None:
        self._broken.set_result(None)
        self._broken = self._loop.create_future()


class _Stub:
    def __init__(self, line: Line, alive: Callable[[], bool]) -> None:
        self._line = line
        self._alive = alive

    def __getattr__(self, method: str) -> Any:
        async def call(request: Any, timeout: float, metadata: Any = None) -> Any:
            if not self._alive():
                raise asyncio.CancelledError
            answer = await self._line.call(method, request, timeout)
            if not self._alive():
                raise asyncio.CancelledError
            return answer

        return call

    def Watch(  # noqa: N802
        self, request: Any, timeout: float, metadata: Any = None
    ) -> Any:
        return _Stream(self._line.watch(request))


class _Stream:
    def __init__(self, messages: Any) -> None:
        self._messages = messages

    def __aiter__(self) -> Any:
        return self._messages

    def cancel(self) -> None:
        """Close the stream for its reader."""


class MemoryClient(AgentClient):
    """A client of an agent in this process, for one run of a control plane."""

    def __init__(
        self, line: Line, alive: Callable[[], bool], make_ticket: MakeTicket | None = None
    ) -> None:
        self._line = line
        self._alive = alive
        super().__init__("", make_ticket=make_ticket)

    def redial(self, credentials: Credentials | None = None) -> None:
        """Do nothing: every call has its own connection."""

    async def close(self) -> None:
        """Do nothing: calls end with their tasks."""

    def _dial(self, credentials: Credentials | None) -> None:
        self._channel = cast("Any", None)
        self._stub = cast("Any", _Stub(self._line, self._alive))


def _unavailable() -> AioRpcError:
    return _error(grpc.StatusCode.UNAVAILABLE, "the connection is broken")


def _error(code: grpc.StatusCode, details: str, trailing: Any = ()) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(*trailing), details)
