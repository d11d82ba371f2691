"""A registry that quotes what it was logged in with, wherever an answer may hold a text."""

import asyncio
import base64
import json
from collections.abc import Callable
from itertools import cycle
from typing import Self


def _answer(start: str, *headers: str, body: str = "") -> str:
    return "\r\n".join((f"HTTP/1.1 {start}", *headers, f"Content-Length: {len(body)}", "", body))


WAYS: tuple[Callable[[str, str], str], ...] = (
    lambda basic, password: f"{password} {basic}\r\n",
    lambda basic, password: f"HTTP/1.1 200 OK\r\n{password} {basic}\r\n\r\n",
    lambda basic, password: _answer(f"500 {password}", body=json.dumps({"errors": [password]})),
    lambda _, password: _answer("307 x", f"Location: https://{password}.example/"),
    lambda _, password: _answer("200 OK", f"Content-Type: {password}", body=password),
    lambda _, password: _answer("200 OK", f"Docker-Content-Digest: {password}", body="{}"),
    lambda _, password: _answer(
        "200 OK",
        "Content-Type: application/vnd.oci.image.manifest.v1+json",
        body=json.dumps({"mediaType": password, "config": password, password: password}),
    ),
    lambda _, password: f"HTTP/1.1 200 OK\r\nContent-Length: {password}\r\n\r\n",
    lambda _, password: f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{password}\r\n",
)
"""Its answers to requests with a login, in this order."""

CHALLENGES = (
    'Basic realm="x"',
    'Bearer realm="https://{0}.example/"',
    'Bearer realm="https://x:{0}@{0}/{0}"',
    'Bearer realm="{0}"',
)
"""Its answers to other requests, in this order, with the last password of the same Host."""


class QuotingRegistry:
    """Requires a login for everything; `received` has the passwords by address."""

    def __init__(self) -> None:
        self.address = ""
        self.received: dict[str, str] = {}
        self._ways = cycle(WAYS)
        self._challenges = cycle(CHALLENGES)
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        host = _after("Host: ", request)
        basic = _after("Authorization: Basic ", request)
        if basic:
            password = base64.b64decode(basic).decode().partition(":")[2]
            self.received[host] = password
            answer = next(self._ways)(basic, password)
        else:
            challenge = next(self._challenges).format(self.received.get(host, "x"))
            answer = _answer("401 x", f"WWW-Authenticate: {challenge}")
        writer.write(answer.encode())
        writer.close()


def _after(begin: str, request: str) -> str:
    return request.partition(begin)[2].partition("\r\n")[0]
