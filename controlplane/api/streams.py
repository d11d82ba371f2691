"""GET /logs and GET /artifacts: bytes as they come; an error only before the first of them."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from aiohttp import web

from controlplane.api.errors import identifier_of
from controlplane.api.queries import Query
from controlplane.api.services import caller_of, services_of

_log = logging.getLogger(__name__)

FIRST_BYTE_WAIT = 1.0
"""So long a follower of a silent game waits for its header, and a failure can still be told."""

STREAMS = web.AppKey("streams", set[asyncio.Task[object]])
"""The handlers that are sending a stream."""

MAX_PATH_BYTES = 4096


async def stream_logs(request: web.Request) -> web.StreamResponse:
    """GET /logs."""
    query = Query(request)
    session_id, follow = query.required("id"), query.flag("follow")
    query.finish()
    sessions = services_of(request).sessions
    chunks = await sessions.logs(caller_of(request), session_id, follow=follow)
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    return await _send(request, response, chunks, FIRST_BYTE_WAIT if follow else None)


async def fetch_artifact(request: web.Request) -> web.StreamResponse:
    """GET /artifacts."""
    query = Query(request)
    session_id, path = query.required("session"), query.required("path")
    query.absolute_path("path", path, MAX_PATH_BYTES)
    query.finish()
    sessions = services_of(request).sessions
    chunks = await sessions.artifact(caller_of(request), session_id, path)
    response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
    return await _send(request, response, chunks, None)


async def end_streams(app: web.Application) -> None:
    """Break off every stream, so that no follower holds up the end of the process."""
    for task in app[STREAMS]:
        task.cancel()


async def _send(
    request: web.Request,
    response: web.StreamResponse,
    chunks: AsyncGenerator[bytes, None],
    first_wait: float | None,
) -> web.StreamResponse:
    """Wait for the first chunk, at most `first_wait` seconds, then send the header and the rest.

    A failure after the header breaks the connection off, so that nobody takes a part for all.
    """
    task = asyncio.current_task()
    assert task is not None, "handlers run in tasks"
    request.app[STREAMS].add(task)
    task.add_done_callback(request.app[STREAMS].discard)
    async with aclosing(chunks):
        first = asyncio.ensure_future(anext(chunks, None))
        try:
            await asyncio.wait({first}, timeout=first_wait)
            if first.done() and first.exception() is not None:
                await first
            await response.prepare(request)
            await _pass_on(request, response, first, chunks)
        finally:
            first.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await asyncio.wait({first})
    return response


async def _pass_on(
    request: web.Request,
    response: web.StreamResponse,
    first: asyncio.Future[bytes | None],
    chunks: AsyncGenerator[bytes, None],
) -> None:
    try:
        chunk = await first
        while chunk is not None:
            await response.write(chunk)
            chunk = await anext(chunks, None)
        await response.write_eof()
    except Exception:  # noqa: BLE001  # the header is out: only a broken connection can tell
        _log.warning("request %s: broke a stream off", identifier_of(request), exc_info=True)
        if request.transport is not None:
            request.transport.abort()
