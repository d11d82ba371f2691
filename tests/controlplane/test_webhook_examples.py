"""The receivers of docs/examples verify what webhooks send, and print each event once."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controlplane.domain.webhooks.messages import event_message
from controlplane.domain.webhooks.signing import new_secret, signed_headers
from tests.support.controlplane.system import System, token_id
from tests.support.doc_examples import ROOT
from tests.support.node_programs import compiled, need_node
from tiltyard.runtime.clock import SystemClock

EXAMPLES = ROOT / "docs" / "examples"
PATIENCE = 60.0
EXAMPLE = pytest.mark.parametrize("program", ["webhook_receiver.py", "webhook_receiver.ts"])


async def command(program: str, folder: Path) -> list[str]:
    """Return the command of a receiver."""
    if program.endswith(".py"):
        return [sys.executable, str(EXAMPLES / program), "0"]
    need_node()
    return ["node", str(await compiled(EXAMPLES / program, folder)), "0"]


class Running:
    """A receiver, and what it is sent."""

    def __init__(self, process: Process, url: str, http: aiohttp.ClientSession) -> None:
        self._process = process
        self.url = url
        self._http = http

    async def line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return (await self._process.stdout.readline()).decode().strip()

    async def send(
        self, number: int, *secrets: str, late: float = 0.0, changed: bytes = b""
    ) -> int:
        """Send a message about the object of a number; return the status of the answer."""
        event = f'{{"id": "1-{number}", "object": "match-{number}"}}'
        now = SystemClock().time()
        message = event_message("w", f"1-{number}", kind="session.ready", time=now, event=event)
        headers = signed_headers(secrets, message.id, int(now - late), message.body)
        body = changed or message.body
        async with self._http.post(self.url, data=body, headers=headers) as response:
            return response.status


@asynccontextmanager
async def running(program: str, folder: Path, secret: str) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        *await command(program, folder), env={**os.environ, "WEBHOOK_SECRET": secret}, stdout=PIPE
    )
    try:
        async with aiohttp.ClientSession() as http:
            receiver = Running(process, "", http)
            port = (await receiver.line()).removeprefix("receiving on port ")
            yield Running(process, f"http://127.0.0.1:{port}/", http)
    finally:
        process.kill()
        await process.wait()


@EXAMPLE
async def test_receiver_takes_genuine_messages_alone(program: str, tmp_path: Path) -> None:
    secret = new_secret()
    other = new_secret()
    async with running(program, tmp_path, secret) as receiver:
        assert await receiver.send(1, secret) == 204
        assert await receiver.send(1, secret) == 204  # printed once
        assert await receiver.send(2, other) == 401
        assert await receiver.send(3, secret, late=600) == 401
        assert await receiver.send(4, secret, changed=b"{}") == 401
        assert await receiver.send(5, secret, changed=b" " * 30_000) in {401, 413}
        assert await receiver.send(6, other, secret) == 204
        assert await receiver.line() == "session.ready match-1"
        assert await receiver.line() == "session.ready match-6"


@EXAMPLE
@pytest.mark.system(webhook_networks=("127.0.0.0/8",), webhook_plain_http=True)
async def test_receiver_takes_deliveries_also_during_a_rotation(
    program: str, system: System, tmp_path: Path
) -> None:
    body = {"url": "http://127.0.0.1:9/", "kinds": ["token.created"], "enabled": False}
    webhook: Any = (await system.call("POST", "/webhook", json=body)).expect(201).json
    path = f"/webhook/{webhook['id']}"
    async with running(program, tmp_path, webhook["secret"]) as receiver:
        body |= {"url": receiver.url, "enabled": True}
        (await system.call("PUT", path, json=body)).expect(200)
        token = await create_token(system, "before")
        assert await receiver.line() == f"token.created {token}"
        (await system.call("POST", f"{path}/secret")).expect(200)
        token = await create_token(system, "during")
        assert await receiver.line() == f"token.created {token}"


async def create_token(system: System, name: str) -> str:
    body = {"name": name, "scopes": ["session:read"]}
    made: Any = (await system.call("POST", "/token", json=body)).expect(201).json
    return token_id(made["token"])
