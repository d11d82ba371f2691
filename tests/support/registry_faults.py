"""Faults of registries and their networks, for `ChaosRegistry`."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

_CHUNK = 2**16
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}


@dataclass(frozen=True)
class Exchange:
    """A request, and the answer of the registry or another server."""

    request: web.Request
    answer: aiohttp.ClientResponse
    healed: asyncio.Event = field(default_factory=asyncio.Event)

    async def begin(self) -> web.StreamResponse:
        """Send the status and headers of the answer."""
        headers = {k: v for k, v in self.answer.headers.items() if k.lower() not in HOP_BY_HOP}
        response = web.StreamResponse(status=self.answer.status, headers=headers)
        await response.prepare(self.request)
        return response

    def hang_up(self, *, by_reset: bool) -> None:
        """Close the connection."""
        transport = self.request.transport
        assert transport is not None
        if by_reset:
            peer: socket.socket = transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.close()


Fault = Callable[[Exchange], Awaitable[web.StreamResponse]]


async def passes(exchange: Exchange) -> web.StreamResponse:
    """Pass on the answer of the registry."""
    response = await exchange.begin()
    async for chunk in exchange.answer.content.iter_chunked(_CHUNK):
        await response.write(chunk)
    return response


def answers(status: int, **headers: str) -> Fault:
    """Make a fault that answers with this status; `_` in a header's name stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def fault(_: Exchange) -> web.StreamResponse:
        return web.Response(status=status, headers=named, text=f"<h1>{status}</h1>\n")

    return fault


def errs(status: int, code: str, message: str) -> Fault:
    """Make a fault that answers with an error of the distribution API."""
    body = {"errors": [{"code": code, "message": message}]}

    async def fault(_: Exchange) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return fault


def delays(seconds: float) -> Fault:
    """Make a fault that answers late."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await passes(exchange)

    return fault


async def waits(exchange: Exchange) -> web.StreamResponse:
    """Answer once the registry is healed."""
    await exchange.healed.wait()
    return await passes(exchange)


async def hangs(exchange: Exchange) -> web.StreamResponse:
    """Never answer; hang up when the registry is healed."""
    await exchange.healed.wait()
    exchange.hang_up(by_reset=False)
    return web.Response()


async def hangs_half_way(exchange: Exchange) -> web.StreamResponse:
    """Send half of the answer; hang up when the registry is healed."""
    await _send_half(exchange)
    return await hangs(exchange)


async def trickles(exchange: Exchange) -> web.StreamResponse:
    """Send one byte per second."""
    response = await exchange.begin()
    for byte in await exchange.answer.read():
        await response.write(bytes([byte]))
        await asyncio.sleep(1)
    return response


async def corrupts(exchange: Exchange) -> web.StreamResponse:
    """Send the answer with a wrong last byte."""
    body = bytearray(await exchange.answer.read())
    body[-1] ^= 0xFF
    response = await exchange.begin()
    await response.write(body)
    return response


async def breaks_off(exchange: Exchange) -> web.StreamResponse:
    """Send half of the answer and hang up."""
    response = await _send_half(exchange)
    exchange.hang_up(by_reset=False)
    return response


async def resets(exchange: Exchange) -> web.StreamResponse:
    """Send half of the answer and reset the connection."""
    response = await _send_half(exchange)
    exchange.hang_up(by_reset=True)
    return response


async def _send_half(exchange: Exchange) -> web.StreamResponse:
    body = await exchange.answer.read()
    response = await exchange.begin()
    await response.write(body[: len(body) // 2])
    return response
