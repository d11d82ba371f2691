"""Logs through nginx and HAProxy with the defaults of their packages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from tests.support.controlplane.proxies import KINDS, proxy
from tests.support.controlplane.scrapes import Scrape, Scraped
from tests.support.controlplane.system import PATIENCE, System, eventually

PROMPT = 30.0
"""Seconds within which a line must arrive. A proxy that collects lines sends this few only when it
cuts the stream, after 50 seconds or more."""
QUIET = 1.0  # After which the proxies of a test cut a stream

pytestmark = pytest.mark.system(application={}, session="s")
each_proxy = pytest.mark.parametrize("kind", KINDS)


@asynccontextmanager
async def following(
    system: System, url: str, offset: int = 0
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Follow the log of the session through a proxy, from an offset."""
    headers = {"Authorization": f"Bearer {system.tokens['alice']}"}
    path = f"{url}/logs?id=s&follow=true&offset={offset}"
    async with system.http.get(path, headers=headers) as response:
        assert response.status == 200
        assert response.headers["X-Log-Offset"] == str(offset)
        yield response


async def until_cut(system: System, url: str, offset: int) -> bytes:
    """Follow the log until the proxy cuts it, which may be before a line of a busy machine."""
    received = b""
    with suppress(aiohttp.ClientPayloadError):  # how HAProxy ends it
        async with asyncio.timeout(PATIENCE), following(system, url, offset) as response:
            while data := await response.content.readany():
                received += data
    return received


@each_proxy
async def test_each_line_arrives_without_another_one(
    system: System, tmp_path: Path, kind: str
) -> None:
    async with proxy(kind, tmp_path, system.port) as url, following(system, url) as response:
        for line in system.agent.logs[:2]:
            assert await asyncio.wait_for(response.content.readline(), PROMPT) == line
        for number in range(5):
            line = b"tick %d\n" % number
            system.agent.log.write(system.agent.logs, line)
            assert await asyncio.wait_for(response.content.readline(), PROMPT) == line


@each_proxy
async def test_a_log_that_a_proxy_has_cut_is_resumed_at_a_byte(
    system: System, tmp_path: Path, kind: str
) -> None:
    received = b""
    lines = b"line 1\nline 2\n"
    async with proxy(kind, tmp_path, system.port, quiet=QUIET) as url:
        async with asyncio.timeout(PATIENCE):
            while len(received) < len(lines):
                received += await until_cut(system, url, len(received))
        assert received == lines
        missed = b"missed 1\nmissed 2\n"
        system.agent.log.write(system.agent.logs, missed)
        await eventually(partial(continues, system, url, len(received), missed))


async def continues(system: System, url: str, offset: int, stored: bytes) -> bool:
    """Follow from an offset; return whether a line that is written then came before a cut."""
    later = b"later %d\n" % len(system.agent.logs)
    with suppress(aiohttp.ClientPayloadError, asyncio.IncompleteReadError):
        async with asyncio.timeout(PATIENCE), following(system, url, offset) as response:
            assert await response.content.readexactly(len(stored)) == stored
            system.agent.log.write(system.agent.logs, later)
            while line := await response.content.readline():
                if line == later:
                    return True
    return False


@pytest.mark.system(kind=Scraped)
async def test_a_plain_health_check_finds_the_api(system: Scraped, tmp_path: Path) -> None:
    """HAProxy's `option httpchk` asks with OPTIONS /, and takes the API for down otherwise."""

    def was_checked(scrape: Scrape) -> bool:
        return scrape.sum("http_requests_total", method="OPTIONS") >= 5

    async with proxy("haproxy", tmp_path, system.port, checks=True) as url:
        await system.shows(was_checked)
        async with system.http.get(f"{url}/healthz") as response:
            assert response.status == 200
