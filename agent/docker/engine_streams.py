"""Logs, archives, pulls and events of Docker, on the event loop: no thread per stream."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

import aiohttp

from agent.docker.bodies import message_of, translated
from agent.docker.errors import Call, error_of_answer
from agent.docker.frames import Demultiplexer, PullSteps, error_in
from agent.domain.containers.engine import LABEL_AGENT, LABEL_SESSION, Credentials, LogPiece
from agent.domain.errors import (
    EngineError,
    EngineUnavailableError,
    InvalidArgumentError,
    PathNotFoundError,
)
from tiltyard.images import PullProgress

CONNECT_SECONDS = 5.0  # A unix socket connects at once, unless the daemon's backlog is full

GATHER_SECONDS = 0.002
"""Batches log lines, which the engine sends one by one: the cost per message dominates."""

_READ_AHEAD = 2**18  # Bytes to prefetch; also the chunk size for callers
_ARCHIVE_AHEAD = 2**19  # Bytes of an archive to prefetch while earlier data is packed
_PATH_HEADER = "X-Docker-Container-Path-Stat"  # Describes the path of an archive
_EVENTS = ["create", "start"]
"""Events of containers that may be unexpected; the agent notices ends itself."""

T = TypeVar("T")


class DockerStreams:
    """Streams from the daemon at a unix socket, each on its own connection while it lasts.

    `read_timeout`, `pull_timeout`: seconds between reads, and for the beginning of the answer;
    between reads, followed logs and events have none.
    """

    def __init__(self, socket_path: str, *, read_timeout: float, pull_timeout: float) -> None:
        self._socket_path = socket_path
        self._read_timeout = read_timeout
        self._pull_timeout = pull_timeout
        self._session: aiohttp.ClientSession | None = None

    def logs(
        self,
        container: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        longest: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[LogPiece]]]:
        """Read stdout and stderr in recorded order. `tail`: only the last pieces."""
        params = {"stdout": "1", "stderr": "1", "timestamps": "1"}
        params |= {"follow": "1"} if follow else {}
        params |= {} if tail is None else {"tail": str(tail)}
        return self._open(
            Call("logs", container=container),
            f"/containers/{quote(container, safe='')}/logs",
            params,
            _pieces,
            read_timeout=None if follow else self._read_timeout,
            longest=longest,
        )

    @contextlib.asynccontextmanager
    async def archive(self, container: str, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a file or folder as an uncompressed tar; a link is followed in the container."""
        async with self._archive(container, path) as found:
            target = found.target
            if not target:
                yield found.body
                return
        async with self._archive(container, target) as found:
            yield found.body

    @contextlib.asynccontextmanager
    async def _archive(self, container: str, path: str) -> AsyncIterator["_Archive"]:
        at = f"/containers/{quote(container, safe='')}"
        timeout = self._read_timeout
        try:
            async with self._open(
                Call("archive", container=container, path=path),
                f"{at}/archive",
                {"path": path},
                _archives,
                read_timeout=timeout,
                read_ahead=_ARCHIVE_AHEAD,
            ) as archives:
                yield await anext(archives)
        except PathNotFoundError:
            call = Call("inspect", container=container)
            async with self._open(call, f"{at}/json", {}, _body, read_timeout=timeout):
                raise  # ContainerGoneError if the container is missing, not the path

    def pull(
        self, image: str, credentials: Credentials | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[PullProgress]]:
        """Pull an image by digest; the iterator ends when the image is on the host."""
        if "@" not in image:
            # The engine would pull all tags of the repository.
            raise InvalidArgumentError("image", "it is not a reference by digest")
        return self._open(
            Call("pull", image=image),
            "/images/create",
            {"fromImage": image},
            _steps,
            method="POST",
            read_timeout=self._pull_timeout,
            headers={} if credentials is None else _login(image, credentials),
        )

    def events(self, agent_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Internal ids of sessions whose container was created or started; best effort."""
        labels = [f"{LABEL_AGENT}={agent_id}", LABEL_SESSION]
        filters = {"type": ["container"], "event": _EVENTS, "label": labels}
        params = {"filters": json.dumps(filters)}
        return self._open(Call("events"), "/events", params, _sessions, read_timeout=None)

    async def close(self) -> None:
        """Close the open streams."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @contextlib.asynccontextmanager
    async def _open(
        self,
        call: Call,
        path: str,
        params: Mapping[str, str],
        items: Callable[[Call, aiohttp.ClientResponse], AsyncGenerator[T]],
        *,
        method: str = "GET",
        read_timeout: float | None,
        longest: float | None = None,
        headers: Mapping[str, str] | None = None,
        read_ahead: int = _READ_AHEAD,
    ) -> AsyncIterator[AsyncIterator[T]]:
        """Open a stream parsed by `items`; it is closed after `longest` seconds.

        A stream whose reads have no timeout is answered within that of others: the engine sends
        the headers before there is anything to stream.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=read_timeout)
        async with contextlib.AsyncExitStack() as stack:
            with translated(call):
                async with asyncio.timeout(read_timeout or self._read_timeout):
                    response = await self._connections().request(
                        method,
                        f"http://docker{path}",
                        params=params,
                        headers=headers,
                        timeout=timeout,
                        read_bufsize=read_ahead,
                    )
                    stack.callback(response.close)
                    message = "" if response.status == 200 else await message_of(response)
            if response.status != 200:
                raise error_of_answer(call, response.status, message)
            if longest is not None:
                ending = asyncio.get_running_loop().call_later(longest, response.close)
                stack.callback(ending.cancel)
            yield await stack.enter_async_context(aclosing(items(call, response)))

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._socket_path, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Archives must arrive uncompressed: they are counted and packed here.
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        return self._session


@dataclass(frozen=True, slots=True)
class _Archive:
    """An answer with an archive: of the link itself if the path is one, with its `target`.

    The engine resolves the target, with all links on the way, within the container.
    """

    target: str
    body: AsyncGenerator[bytes]


async def _archives(call: Call, response: aiohttp.ClientResponse) -> AsyncGenerator[_Archive]:
    with translated(call):
        described = json.loads(base64.b64decode(response.headers[_PATH_HEADER], validate=True))
        target = str(described["linkTarget"])
    async with aclosing(_body(call, response)) as body:
        yield _Archive(target, body)


async def _body(call: Call, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    while True:
        with translated(call):
            data = await response.content.readany()
        if not data:
            return
        yield data


async def _pieces(
    call: Call, response: aiohttp.ClientResponse
) -> AsyncGenerator[Sequence[LogPiece]]:
    frames = Demultiplexer()
    async with aclosing(_body(call, response)) as body:
        async for data in body:
            more = await _soon(response.content) if len(data) < _READ_AHEAD else b""
            with translated(call):
                pieces = frames.feed(data + more)
            if pieces:
                yield pieces
    if frames.complaint:
        raise EngineError(call.name, frames.complaint)
    if not frames.between_frames:
        raise EngineUnavailableError("it ended within a frame of the log")


async def _soon(body: aiohttp.StreamReader) -> bytes:
    """Wait briefly for more data; an error is left for the next read."""
    await asyncio.sleep(GATHER_SECONDS)
    return b"" if body.exception() else body.read_nowait()


async def _objects(
    call: Call, response: aiohttp.ClientResponse
) -> AsyncGenerator[dict[str, object]]:
    while True:
        with translated(call):
            line = await response.content.readline()
            found = dict(json.loads(line)) if line.strip() else {}
        if not line:
            return
        if found:
            yield found


async def _steps(call: Call, response: aiohttp.ClientResponse) -> AsyncGenerator[PullProgress]:
    steps = PullSteps()
    async with aclosing(_objects(call, response)) as objects:
        async for found in objects:
            if message := error_in(found):
                raise error_of_answer(call, response.status, message)
            yield steps.add(found)


async def _sessions(call: Call, response: aiohttp.ClientResponse) -> AsyncGenerator[str]:
    async with aclosing(_objects(call, response)) as objects:
        async for found in objects:
            with translated(call):
                session = found["Actor"]["Attributes"][LABEL_SESSION]  # type: ignore[index]
            yield session
    raise EngineUnavailableError("it ended its stream of events")


def _login(image: str, credentials: Credentials) -> Mapping[str, str]:
    """The header with the credentials for the registry of an image."""
    login = {
        "username": credentials.username,
        "password": credentials.password,
        "serveraddress": image.partition("/")[0],
    }
    encoded = base64.urlsafe_b64encode(json.dumps(login).encode())
    return {"X-Registry-Auth": encoded.decode("ascii")}
