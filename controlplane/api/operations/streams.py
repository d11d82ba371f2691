"""GET /logs and GET /artifacts; errors are reported only before the first byte."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Annotated

from aiohttp import web
from prometheus_client import Counter
from pydantic import Field

from controlplane.api.operations.fields import Text
from controlplane.api.operations.operation import operation
from controlplane.api.operations.queries import Flag, Query
from controlplane.api.operations.services import SERVICES, caller_of, services_of
from controlplane.http.errors import break_off
from controlplane.http.request_slots import release_slot

FIRST_BYTE_WAIT = 1.0  # Seconds that a followed log delays its headers for first bytes or an error


class LogsQuery(Query):
    """The query of GET /logs."""

    id: Text
    follow: Flag = False


class ArtifactQuery(Query):
    """The query of GET /artifacts; `path`: absolute, a file or folder in the container."""

    session: Text
    path: Annotated[str, Field(pattern=r"^/[^\u0000]*$", max_length=4096)]


@operation(media_types=("text/plain",))
async def stream_logs(request: web.Request, query: LogsQuery) -> web.StreamResponse:
    """Read the output of a session so far, or follow it to its end."""
    services = services_of(request)
    chunks = await services.sessions.logs(caller_of(request), query.id, follow=query.follow)
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    wait = FIRST_BYTE_WAIT if query.follow else None
    return await _send(request, response, chunks, passed=services.http.log_bytes, first_wait=wait)


@operation(media_types=("application/x-tar",))
async def fetch_artifact(request: web.Request, query: ArtifactQuery) -> web.StreamResponse:
    """Fetch a file or folder of an ended session as a .tar.gz archive."""
    services = services_of(request)
    chunks = await services.sessions.artifact(caller_of(request), query.session, query.path)
    response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
    return await _send(request, response, chunks, passed=services.http.artifact_bytes)


async def end_streams(app: web.Application) -> None:
    """Close all streams, so that followers do not delay the shutdown."""
    app[SERVICES].streams.end_all()


async def _send(
    request: web.Request,
    response: web.StreamResponse,
    chunks: AsyncGenerator[bytes, None],
    *,
    passed: Counter,
    first_wait: float | None = None,
) -> web.StreamResponse:
    """Wait at most `first_wait` seconds for a chunk, then send headers and all chunks."""
    release_slot()
    try:
        async with aclosing(chunks), services_of(request).streams.opened(caller_of(request)):
            await _pass_on(request, response, chunks, passed=passed, first_wait=first_wait)
    except Exception:
        if not response.prepared:
            raise
        break_off(request, "a stream")
    return response


async def _pass_on(
    request: web.Request,
    response: web.StreamResponse,
    chunks: AsyncGenerator[bytes, None],
    *,
    passed: Counter,
    first_wait: float | None,
) -> None:
    first = asyncio.ensure_future(anext(chunks, None))
    try:
        await asyncio.wait({first}, timeout=first_wait)
        if first.done() and first.exception() is not None:
            await first
        await response.prepare(request)
        chunk = await first
        while chunk is not None:
            await response.write(chunk)
            passed.inc(len(chunk))
            chunk = await anext(chunks, None)
        await response.write_eof()
    finally:
        first.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await asyncio.wait({first})
