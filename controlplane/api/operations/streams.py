"""GET /logs and GET /artifacts; errors are reported only before the first byte."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Annotated

from aiohttp import web
from pydantic import Field

from controlplane.admission.request_slots import release_request_slot
from controlplane.api.operations.fields import Text
from controlplane.api.operations.operation import operation
from controlplane.api.operations.queries import Flag, LogOffset, Query
from controlplane.api.operations.services import SERVICES, caller_of, services_of
from controlplane.domain.errors import BeyondLogError
from controlplane.domain.hosts.contract import LogPart
from controlplane.http.errors import break_off
from controlplane.http.messages import Request
from tiltyard.runtime.metrics.instruments import Counter

LOG_OFFSET = "X-Log-Offset"
POSITION_WAIT = 15.0  # Seconds for a host to find an offset: it reads up to 64 MiB
FIRST_BYTE_WAIT = 1.0  # Seconds that a followed log delays its headers for first bytes or an error


class LogsQuery(Query):
    """The query of GET /logs."""

    id: Text
    follow: Flag = False
    offset: LogOffset | None = None


class ArtifactQuery(Query):
    """The query of GET /artifacts; `path`: absolute, a file or folder in the container."""

    session: Text
    path: Annotated[str, Field(pattern=r"^/[^\u0000]*$", max_length=4096)]


@operation(
    media_types=("text/plain",),
    at_times={
        LOG_OFFSET: "If `offset` was requested: the offset of the first byte, or `unknown`.",
    },
)
async def stream_logs(request: Request, query: LogsQuery) -> web.StreamResponse:
    """Read the output of a session so far, or follow it to its end.

    `offset` is the first byte to send, counted from 0 since the first run of the session, so that
    a reader can resume where its connection broke.
    """
    services = services_of(request)
    response = web.StreamResponse(
        headers={"Content-Type": "text/plain; charset=utf-8", "X-Accel-Buffering": "no"}
    )
    caller = caller_of(request)
    if query.offset is None:
        chunks = await services.sessions.logs(caller, query.id, follow=query.follow)
        wait = FIRST_BYTE_WAIT if query.follow else None
    else:
        parts = await services.sessions.log_from(
            caller, query.id, query.offset, follow=query.follow
        )
        chunks = _positioned(parts, response, query.offset)
        wait = POSITION_WAIT
    return await _send(request, response, chunks, passed=services.http.log_bytes, first_wait=wait)


@operation(media_types=("application/x-tar",))
async def fetch_artifact(request: Request, query: ArtifactQuery) -> web.StreamResponse:
    """Fetch a file or folder of an ended session as a .tar.gz archive."""
    services = services_of(request)
    chunks = await services.sessions.artifact(caller_of(request), query.session, query.path)
    response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
    return await _send(request, response, chunks, passed=services.http.artifact_bytes)


async def _positioned(
    parts: AsyncGenerator[LogPart, None], response: web.StreamResponse, offset: int
) -> AsyncGenerator[bytes, None]:
    """Yield a log from an offset, after the response has the header that states where it begins.

    Raises:
        BeyondLogError: The log ends before the offset.
    """
    async with aclosing(parts):
        first = await anext(parts, LogPart(b"", None))
        response.headers[LOG_OFFSET] = "unknown" if first.offset is None else str(first.offset)
        if first.offset is not None and first.offset < offset:
            raise BeyondLogError(offset, first.offset)
        yield first.data
        async for part in parts:
            yield part.data


async def end_streams(app: web.Application) -> None:
    """Close all streams, so that followers do not delay the shutdown."""
    app[SERVICES].streams.end_all()


async def _send(
    request: Request,
    response: web.StreamResponse,
    chunks: AsyncGenerator[bytes, None],
    *,
    passed: Counter,
    first_wait: float | None = None,
) -> web.StreamResponse:
    """Wait at most `first_wait` seconds for a chunk, then send headers and all chunks."""
    release_request_slot()
    streams = services_of(request).streams
    try:
        with request.ended_by_disconnect():
            async with aclosing(chunks), streams.opened(caller_of(request)):
                await _pass_on(request, response, chunks, passed=passed, first_wait=first_wait)
    except Exception:
        if not response.prepared:
            raise
        break_off(request, "a stream")
    return response


async def _pass_on(
    request: Request,
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
        if request.method == "HEAD":
            return
        chunk = await first
        while chunk is not None:
            if chunk:
                await response.write(chunk)
            passed.inc(len(chunk))
            chunk = await anext(chunks, None)
        await response.write_eof()
    finally:
        first.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await asyncio.wait({first})
