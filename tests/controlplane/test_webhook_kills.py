"""A control plane that is killed delivers each event at least once, and in order."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from controlplane.app.control_plane import ControlPlane
from controlplane.settings.model import load_config
from tests.faults.plugin import Rounds
from tests.support.controlplane.system import eventually, token_id
from tests.support.controlplane.webhook_receiver import Receiver
from tests.support.hold import Hold

PROGRAM = (sys.executable, "-m", "controlplane")


class Killed:
    """A control plane in a process of its own, which is killed and started again."""

    def __init__(self, settings: Path, http: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._log = settings.with_suffix(".log")
        self._http = http
        self._token = ""
        self._process: asyncio.subprocess.Process | None = None
        self._url = ""
        self._made = 0

    async def initialise(self) -> None:
        with self._settings.open("a") as file:
            file.write('webhook_networks = ["127.0.0.0/8"]\nwebhook_plain_http = true\n')
        config = await asyncio.to_thread(load_config, self._settings)
        tokens = await ControlPlane(config).initialise(("alice",))
        self._token = tokens.accounts["alice"]

    async def start(self) -> None:
        self._log.write_bytes(b"")
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *PROGRAM, "serve", "--config", self._settings, stdout=log, stderr=log
            )
        await eventually(lambda: "address=http" in self._log.read_text("utf-8"))
        [self._url] = re.findall(r"address=(http\S+)", self._log.read_text("utf-8"))

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    async def call(self, path: str, **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with self._http.post(self._url + path, json=body, headers=headers) as response:
            assert response.status == 201, await response.text()
            return await response.json()

    async def cause(self) -> str:
        """Cause an event of a token; return its object."""
        self._made += 1
        made = await self.call("/token", name=f"t{self._made}", scopes=["session:read"])
        return token_id(made["token"])


@asynccontextmanager
async def killed(settings: Path) -> AsyncIterator[Killed]:
    async with aiohttp.ClientSession() as http:
        program = Killed(settings, http)
        await program.initialise()
        await program.start()
        try:
            yield program
        finally:
            await program.kill()


def first_of_each(objects: list[str]) -> list[str]:
    """Return the objects in the order in which each was received first."""
    return list(dict.fromkeys(objects))


async def test_event_whose_attempt_was_not_recorded_is_delivered_again(settings: Path) -> None:
    async with Receiver() as receiver, killed(settings) as program:
        await program.call("/webhook", url=receiver.url, kinds=["token.created"])
        objects = [await program.cause()]
        await receiver.gets(1)
        late = Hold()

        async def answer_too_late(request: web.Request) -> web.StreamResponse:
            await late()
            return await receiver.accept(request)

        receiver.answer = answer_too_late
        objects += [await program.cause(), await program.cause()]
        await late.reached.wait()
        await program.kill()
        late.set()
        receiver.answer = receiver.accept
        await program.start()
        received = await receiver.gets_objects(objects)
        assert first_of_each(received) == objects
        assert received.count(objects[1]) == 2
        ids = [each.id for each in receiver.received if each.object == objects[1]]
        assert len(set(ids)) == 1


@pytest.mark.part_alone
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ordered", [True, False])
async def test_f36_webhooks_get_every_event_of_a_control_plane_that_is_killed_at_random(
    settings: Path, rounds: Rounds, chance: Random, *, ordered: bool
) -> None:
    async with Receiver() as receiver, killed(settings) as program:
        await program.call("/webhook", url=receiver.url, kinds=["token.created"], ordered=ordered)
        objects: list[str] = []
        for _ in range(rounds(2, 50)):
            objects += [await program.cause() for _ in range(chance.randrange(1, 10))]
            await receiver.gets(chance.randrange(len(objects)))
            await program.kill()
            await program.start()
        received = await receiver.gets_objects(objects)
        assert set(received) == set(objects)
        assert not ordered or first_of_each(received) == objects
