"""An AgentService that knows no message: it hands calls on, byte for byte, to one that does."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import grpc

SERVICE = "tiltyard.agent.v1.AgentService"


class ByteProxy(grpc.GenericRpcHandler):
    """Hands on what it is asked, and what is answered, errors with their trailing metadata too.

    Subclasses may change either, or leave out a method.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._onward: grpc.aio.Channel | None = None

    def knows(self, method: str) -> bool:
        """Return whether there is such a method."""
        return True

    def asked(self, method: str, request: bytes) -> bytes:
        """What becomes of a request."""
        return request

    def answered(self, method: str, response: bytes) -> bytes:
        """What becomes of a response."""
        return response

    def failed(self, method: str, request: bytes, error: grpc.aio.AioRpcError) -> None:
        """Learn of an error that is handed on."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call; None is answered with UNIMPLEMENTED."""
        service, method = details.method.removeprefix("/").split("/")
        if service != SERVICE or not self.knows(method):
            return None

        # On the wire a single answer is a stream of one.
        async def handle(request: bytes, context: Any) -> AsyncGenerator[bytes]:
            async with contextlib.aclosing(self.handed_on(method, request, context)) as answers:
                async for answer in answers:
                    yield answer

        return grpc.unary_stream_rpc_method_handler(handle)

    async def handed_on(self, method: str, request: bytes, context: Any) -> AsyncGenerator[bytes]:
        """Make a call, and give its responses."""
        assert self._onward is not None
        ask: Any = self._onward.unary_stream(f"/{SERVICE}/{method}")
        call = ask(self.asked(method, request), timeout=context.time_remaining())
        try:
            async for response in call:
                yield self.answered(method, response)
        except grpc.aio.AioRpcError as error:
            self.failed(method, request, error)
            trailing = tuple(error.trailing_metadata() or ())
            await context.abort(error.code(), error.details() or "", trailing)
        finally:
            call.cancel()

    @contextlib.asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[str]:
        """Serve on a unix socket, and give its address."""
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self,))
        server.add_insecure_port(f"unix:{socket}")
        async with grpc.aio.insecure_channel(self.target) as self._onward:
            await server.start()
            try:
                yield f"unix:{socket}"
            finally:
                await server.stop(None)
