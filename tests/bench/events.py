"""Streams of events: how soon many of them get new ones, and how fast one gets old ones.

The control plane is another process. It notes when an event was committed, and the readers here
when they have it, by the same clock.
"""

import asyncio
import json
import statistics
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from tests.bench.load import percentile
from tests.bench.report import Result
from tests.support.deployment import Steps

ACCOUNTS = 200
STREAMS_EACH = 10
RATE = 200  # Events per second, of the accounts in turn: each is seen by STREAMS_EACH
SECONDS = 20
BURSTS = 5
HISTORY = 200_000
OPENED_AT_ONCE = 50
CHUNK = 1 << 18
LINE = 1 << 24  # Bytes of the longest line from the control plane

_FIRST = b'"object": "'


class _Server:
    """The control plane, and its answers."""

    def __init__(self, process: Process, about: dict[str, Any]) -> None:
        self._process = process
        self.port = urlsplit(about["url"]).port
        self.tokens: list[str] = about["tokens"]
        self.operator: str = about["operator"]

    async def send(self, command: str) -> Any:
        """Send a command; return its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        return json.loads(await self._process.stdout.readline())


class _Stream:
    """A reader of a stream: when it has got the event of each object."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.got: dict[str, float] = {}

    async def opened(self) -> None:
        """Read until the stream is open."""
        await self._reader.readuntil(b"stream.open")

    async def follow(self, prefix: str) -> None:
        """Note the events whose objects begin like this."""
        while line := await self._reader.readline():
            _, found, rest = line.partition(_FIRST)
            if found and rest.startswith(prefix.encode()):
                self.got[rest.partition(b'"')[0].decode()] = monotonic()

    async def until(self, name: str) -> None:
        """Read until the event of an object."""
        wanted = _FIRST + name.encode() + b'"'
        tail = b""
        while wanted not in tail:
            tail = tail[-len(wanted) :] + await self._reader.read(CHUNK)


def measure(effort: int, steps: Steps) -> list[Result]:
    """Measure all; with less effort, with fewer accounts and events."""
    accounts = max(2, effort * ACCOUNTS // 100)
    seconds = max(2, effort * SECONDS // 100)
    history = max(2000, effort * HISTORY // 100)
    return asyncio.run(_measure(accounts, seconds, history, steps))


async def _measure(accounts: int, seconds: int, history: int, steps: Steps) -> list[Result]:
    async with _a_server(accounts) as server:
        with steps.step(f"events, {history} are appended in batches"):
            took = await server.send(f"history {history}")
        with steps.step(f"events, one stream reads {history}"):
            read = await _read_history(server, history)
        with steps.step(f"events, {accounts * STREAMS_EACH} streams for {seconds} s"):
            waits, cpu = await _steady(server, seconds)
        with steps.step(f"events, one for {accounts * STREAMS_EACH} streams"):
            last, longest = await _burst(server, accounts * STREAMS_EACH)
    return [
        Result("event.append_per_s", history / took, "/s", least=10_000),
        Result("event.stream_stored_per_s", history / read, "/s", least=30_000),
        Result("event.stream_p50_ms", percentile(waits, 50), "ms"),
        Result("event.stream_p99_ms", percentile(waits, 99), "ms", most=100),
        Result("event.stream_cpu_us", cpu / len(waits) * 1_000_000, "us of each event sent"),
        Result("event.stream_burst_ms", last, "ms", most=300),
        Result("event.stream_burst_wait_ms", longest, "ms", most=20),
    ]


@asynccontextmanager
async def _a_server(accounts: int) -> AsyncIterator[_Server]:
    with TemporaryDirectory(prefix="tiltyard-bench-") as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.bench.event_server",
            str(Path(folder) / "state"),
            str(accounts),
            stdin=PIPE,
            stdout=PIPE,
            limit=LINE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield _Server(process, json.loads(await process.stdout.readline()))
        finally:
            process.stdin.close()
            await process.wait()


@asynccontextmanager
async def _streams(server: _Server, tokens: list[str], path: str) -> AsyncIterator[list[_Stream]]:
    """Open a stream with each of these tokens."""
    async with AsyncExitStack() as stack:
        found: list[_Stream] = []
        for first in range(0, len(tokens), OPENED_AT_ONCE):
            opening = [_open(server, token, path) for token in tokens[first:][:OPENED_AT_ONCE]]
            for stream in await asyncio.gather(*opening):
                stack.callback(stream.writer.transport.abort)
                found.append(stream)
        yield found


async def _open(server: _Server, token: str, path: str) -> _Stream:
    stream = _Stream(*await asyncio.open_connection("127.0.0.1", server.port, limit=LINE))
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n"
    stream.writer.write(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
    await stream.opened()
    return stream


async def _read_history(server: _Server, count: int) -> float:
    """Return the seconds in which one stream gets all stored events."""
    path = "/event?kind=session.*&follow=false"
    async with _streams(server, server.tokens[:1], path) as [stream]:
        began = monotonic()
        await stream.until(f"old-{count - 1}")
        return monotonic() - began


async def _steady(server: _Server, seconds: int) -> tuple[list[float], float]:
    """Return how many milliseconds after its COMMIT each stream had each event.

    Also the processor time of the control plane, in seconds.
    """
    tokens = [token for token in server.tokens for _ in range(STREAMS_EACH)]
    async with _streams(server, tokens, "/event?kind=session.*") as streams:
        reading = [asyncio.create_task(stream.follow("new-"), name="reader") for stream in streams]
        done = await server.send(f"steady {seconds * RATE} {RATE}")
        committed = done["committed"]
        await asyncio.sleep(1.0)
        for reader in reading:
            reader.cancel()
        await asyncio.wait(reading)
        waits = [
            (time - committed[name]) * 1000
            for stream in streams
            for name, time in stream.got.items()
        ]
    assert len(waits) == len(committed) * STREAMS_EACH, "events are missing"
    return waits, done["cpu"]


async def _burst(server: _Server, count: int) -> tuple[float, float]:
    """Return the milliseconds until all have one event, and the longest wait of other requests.

    Both are medians of several events.
    """
    path = "/operator/event?kind=session.*"
    async with _streams(server, [server.operator] * count, path) as streams:
        reading = [
            asyncio.create_task(stream.follow("burst-"), name="reader") for stream in streams
        ]
        done = [await server.send(f"burst {number}") for number in range(BURSTS)]
        for reader in reading:
            reader.cancel()
        await asyncio.wait(reading)
        lasts = [
            max(stream.got[f"burst-{number}"] for stream in streams) - each["committed"]
            for number, each in enumerate(done)
        ]
    longest = statistics.median(each["longest"] for each in done)
    return statistics.median(lasts) * 1000, longest * 1000
