"""Raw HTTP requests and answers that no HTTP library would send or show."""

import asyncio
import json
import ssl
import uuid
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.controlplane.system import PATIENCE, assert_error_form


@dataclass
class RawAnswer:
    """An answer and the data before it."""

    version: str
    status: int
    headers: dict[str, str]
    body: bytes
    interim: list[int] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """A connection; leaving it disconnects."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._tls, limit=2**22
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, method: str = "GET") -> RawAnswer | None:
        """Read one answer; None if the connection ends before it."""
        interim: list[int] = []
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await self._head()
                if answer is None or answer.status >= 200:
                    break
                interim.append(answer.status)
            if answer is not None and method != "HEAD":
                answer.body = await self._body(answer)
        if answer is not None:
            answer.interim = interim
        return answer

    async def read_answer(self) -> RawAnswer:
        """Read one answer; AssertionError if the connection ends before it."""
        answer = await self.answer()
        assert answer is not None, "the connection was closed without an answer"
        return answer

    async def ends(self) -> bytes:
        """Wait until the server closes; return the remaining data."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def _head(self) -> RawAnswer | None:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except ConnectionError:
            return None
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return None
        line, *fields = head.decode("latin-1").split("\r\n")[:-2]
        version, status, _ = line.split(" ", 2)
        pairs = [text.split(": ", 1) for text in fields]
        names = [name.lower() for name, _ in pairs]
        assert len(set(names)) == len(names), head
        return RawAnswer(version, int(status), {n.lower(): v for n, v in pairs}, b"")

    async def _body(self, answer: RawAnswer) -> bytes:
        if answer.headers.get("transfer-encoding") == "chunked":
            return b"".join([chunk async for chunk in self._chunks()])
        if "content-length" in answer.headers:
            return await self.reader.readexactly(int(answer.headers["content-length"]))
        return b"" if answer.status == 204 else await self.reader.read()

    async def _chunks(self) -> Any:
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)


async def ask(port: int, data: bytes) -> RawAnswer | None:
    """Send bytes on a new connection and read the first answer."""
    async with Wire(port) as wire:
        wire.send(data)
        return await wire.answer(data.split(b" ", 1)[0].decode("latin-1"))


def assert_documented(answer: RawAnswer, *, body: bool = True) -> None:
    """Check that an answer is a success or an ErrorResponse, and carries the common headers."""
    assert answer.version in {"HTTP/1.0", "HTTP/1.1"}
    assert "server" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"
    identifier = str(uuid.UUID(answer.headers["x-request-id"]))
    if answer.status < 300:
        return
    assert answer.status != 500, answer.body
    assert answer.headers["content-type"].startswith("application/json")
    if not body:
        return
    error = answer.json
    assert_error_form(error, answer.status)
    assert error["identifier"] == identifier
    assert len(error["path"]) <= 2048
    error["path"].encode("utf-8")
    if answer.status == 405:
        assert answer.headers["allow"]
