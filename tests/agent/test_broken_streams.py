"""Callers that go away while a message is written to them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.rpc.tls_server import new_server

MESSAGE = bytes(64 * 1024)
ROUND_TRIPS = 5  # Other calls of the connection without a message that show a standstill


async def test_a_caller_that_goes_away_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = 0
    ended = asyncio.Event()

    async def write(_: bytes, context: Any) -> AsyncIterator[bytes]:
        nonlocal written
        context.add_done_callback(lambda _: ended.set())
        while True:
            written += 1
            yield MESSAGE

    async def echo(request: bytes, _: Any) -> bytes:
        return request

    server = new_server()
    handlers: dict[str, Any] = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Write": grpc.unary_stream_rpc_method_handler(write),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("Any", handlers)])
    address = f"unix:{tmp_path / 'socket'}"
    server.add_insecure_port(address)
    await server.start()
    channel: Any
    async with grpc.aio.insecure_channel(address) as channel:
        for _ in range(20):
            ended.clear()
            call = channel.unary_stream("/Any/Write")(b"")
            await call.read()
            before = 0
            while before != written:  # until a message waits for the caller to read
                before = written
                for _ in range(ROUND_TRIPS):
                    await channel.unary_unary("/Any/Echo")(b"")
            call.cancel()
            await ended.wait()
    await server.stop(None)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
