"""The edge of the HTTP API: it listens, and checks requests before the application.

Every connection has deadlines and counts against caps, and every refusal is an ErrorResponse.
"""

import asyncio
import logging
import ssl
import time
from itertools import chain

from aiohttp import HttpVersion10, HttpVersion11, web

from controlplane.admission.byte_room import ByteRoom
from controlplane.http.application import Application
from controlplane.http.connection import Connection, Service
from controlplane.http.gate import Gate, listen
from controlplane.http.input import LONG_HEAD, MAX_HEAD
from controlplane.http.limits import Limits
from controlplane.http.messages import Reply, Request
from controlplane.http.refusals import refuse
from tiltyard.runtime.logging.events import bind, get_logger

log = get_logger(__name__)

IDLE_MARGIN = 5.0
"""Seconds that a connection stays open longer than announced, so that no request meets its end."""
_VERSIONS = (HttpVersion11, HttpVersion10)  # The frequent one first
_is_logged = logging.root.isEnabledFor  # Cheaper than a structured logger's


class Edge:
    """Listens, and checks requests before the application: version, expectation, caps."""

    def __init__(self, app: Application, gate: Gate, limits: Limits, responses: ByteRoom) -> None:
        self._app = app
        self._gate = gate
        self._servers: list[asyncio.Server] = []
        announced = int(limits.idle - IDLE_MARGIN)
        idle_hint = f"timeout={announced}" if announced > 0 else ""
        self._service = Service(limits, gate, responses, idle_hint, self._answer)

    async def start(self) -> None:
        """Start the application; raises what its parts raise."""
        self._app.web.pre_freeze()
        await self._app.web.startup()
        self._app.web.freeze()

    async def open(self, address: tuple[str, int], tls: ssl.SSLContext | None) -> str:
        """Listen, and return the base URL."""
        limits = self._service.limits
        loop = asyncio.get_running_loop()
        for listener in await listen(*address, self._gate):
            self._servers.append(
                await loop.create_server(
                    lambda: Connection(self._service),
                    sock=listener,
                    ssl=tls,
                    ssl_handshake_timeout=limits.header if tls else None,
                    ssl_shutdown_timeout=limits.linger if tls else None,
                )
            )
        host, port = self._servers[0].sockets[0].getsockname()[:2]
        return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"

    async def close(self, timeout: float) -> None:
        """Accept no more, and let requests in progress finish; cancel those that are not in time.

        These include requests whose clients have disconnected.
        """
        for server in self._servers:
            server.close()
        for connection in tuple(self._service.connections):
            connection.finish()
        await self._app.web.shutdown()
        tasks = tuple(self._service.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._app.web.cleanup()

    async def _answer(self, request: Request) -> web.StreamResponse:
        """Check a request and answer it; its log lines carry its identifier."""
        bind(request=request.identifier)  # for this request's task
        began = time.monotonic()
        response: web.StreamResponse | None = _refusal_of(request)
        if response is None and request.is_forwarded:
            response = await self._answer_forwarded(request)
        elif response is None:
            response = await self._app.answer(request)
        if _is_logged(logging.DEBUG):
            log.debug(
                "request answered",
                method=request.method,
                path=request.path,
                status=response.status,
                seconds=time.monotonic() - began,
            )
        return response

    async def _answer_forwarded(self, request: Request) -> web.StreamResponse:
        """Answer a request that came through a proxy, unless its caller has too many of them."""
        caller = request.remote or ""
        if not self._gate.take(caller):
            return refuse(request, 503, "too many requests from this address are in progress")
        try:
            return await self._app.answer(request)
        finally:
            self._gate.give(caller)


def _refusal_of(request: Request) -> Reply | None:
    """Refuse what the API does not speak.

    aiohttp treats versions 0.9 and 2.0 as 1.1.
    """
    if request.version not in _VERSIONS:
        return refuse(request, 400, "the version is neither HTTP/1.0 nor HTTP/1.1")
    if len(b"".join(chain.from_iterable(request.raw_headers))) > MAX_HEAD:
        return refuse(request, 431, LONG_HEAD)
    expected = request.headers.get("Expect")
    if expected:
        if expected.lower() != "100-continue":
            return refuse(request, 400, "the only supported expectation is 100-continue")
        # Sent once token, path and size are accepted: see `Request.invite_body`.
        request.awaits_continue = request.version == HttpVersion11
    return None
