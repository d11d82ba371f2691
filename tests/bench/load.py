"""HTTP load generator, in a process of its own.

A client library would use more CPU than the measured server: aiohttp's client takes twice the time
of its server. So each caller is an `asyncio.Protocol` with one kept-alive connection, sends
prepared bytes, and parses only the status and the end of a response.
"""

import asyncio
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT = 600
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_BEGUN = "asking"
_WARM_UP = b"GET /nothing-is-here HTTP/1.1\r\nHost: bench\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; `expect` is the expected status."""

    method: str
    path: str
    expect: int
    body: str = ""

    def encoded(self, token: str) -> str:
        """Return the request as sent; ASCII."""
        body = f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n"
        return (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {token}\r\n{body if self.body else ''}\r\n{self.body}"
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Result: total seconds, milliseconds per request, and the bodies of 201 responses."""

    seconds: float
    times: list[float]
    bodies: list[str]

    @property
    def rate(self) -> float:
        """Responses per second."""
        return len(self.times) / self.seconds


def run_load(url: str, asks: Sequence[Ask], *, callers: int, token: str = "") -> Load:
    """Send all requests; each caller sends its next once the last is answered.

    RuntimeError if a response is not the expected one.
    """
    args = [sys.executable, "-m", __name__]
    given = json.dumps(_input(url, asks, callers, token))
    done = subprocess.run(
        args, cwd=_ROOT, input=given, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load ended with {done.returncode}: {done.stderr.strip()}")
    return Load(**json.loads(done.stdout))


@contextmanager
def a_flood(url: str, asks: Sequence[Ask], *, callers: int, token: str = "") -> Iterator[None]:
    """Send the requests repeatedly until the context ends. RuntimeError if they stop earlier."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__, "--endless"],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as flood:
        assert flood.stdin is not None
        assert flood.stdout is not None
        try:
            flood.stdin.write(json.dumps(_input(url, asks, callers, token)))
            flood.stdin.close()
            began = flood.stdout.readline()
            yield
            if began.strip() != _BEGUN or flood.poll() is not None:
                raise RuntimeError("the flood ended before its time")
        finally:
            flood.terminate()


def _input(url: str, asks: Sequence[Ask], callers: int, token: str) -> dict[str, object]:
    """Return the input of the load process."""
    address = urlsplit(url)
    sent = [(ask.encoded(token), ask.expect) for ask in asks]
    return {"host": address.hostname, "port": address.port, "callers": callers, "asks": sent}


def rate(loads: Iterable[Load]) -> float:
    """Return the median of the responses per second."""
    return statistics.median(load.rate for load in loads)


def percentile(values: Sequence[float], per_cent: int) -> float:
    """Return the smallest value that this percentage of values does not exceed."""
    ranked = sorted(values)
    return ranked[-(-len(ranked) * per_cent // 100) - 1]


class _Caller(asyncio.Protocol):
    """One connection: sends a request, waits for the whole response, sends the next."""

    def __init__(
        self, asks: Iterator[tuple[bytes, bytes]], times: list[float], bodies: list[str]
    ) -> None:
        self._asks = asks
        self._times = times
        self._bodies = bodies
        self._buffer = b""
        self._expect = b""
        self._begin = 0.0
        self._transport: asyncio.Transport
        loop = asyncio.get_running_loop()
        self.is_warm: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(_WARM_UP)

    def ask(self) -> None:
        """Send the next request, or finish."""
        found = next(self._asks, None)
        if found is None:
            self._transport.close()
            self.done.set_result(None)
            return
        content, self._expect = found
        self._begin = time.perf_counter()
        self._transport.write(content)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        body = whole_body(self._buffer)
        if body is None:
            return
        taken = time.perf_counter() - self._begin
        answer = self._buffer
        self._buffer = b""
        if not self.is_warm.done():
            self.is_warm.set_result(None)
        elif answer[9:12] != self._expect:
            self.done.set_exception(RuntimeError(answer.decode(errors="replace")))
        else:
            self._times.append(taken * 1000)
            if self._expect == b"201":
                self._bodies.append(body.decode())
            self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        for each in (self.is_warm, self.done):
            if not each.done():
                each.set_exception(ConnectionError(f"hung up: {error}"))


def whole_body(answer: bytes) -> bytes | None:
    """Return the body of a response, None until it is complete."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return None
    length = _LENGTH.search(head)
    if length is not None:
        return body if len(body) >= int(length[1]) else None
    return None if b"chunked" in head and not (end + body).endswith(_LAST_CHUNK) else body


async def _ask_all(
    host: str, port: int, callers: int, asks: Sequence[tuple[str, int]], *, endless: bool
) -> Load:
    each = [(content.encode(), b"%d" % expect) for content, expect in asks]
    encoded = itertools.cycle(each) if endless else iter(each)
    times: list[float] = []
    bodies: list[str] = []
    loop = asyncio.get_running_loop()

    def make() -> _Caller:
        return _Caller(encoded, times, bodies)

    made = [(await loop.create_connection(make, host, port))[1] for _ in range(callers)]
    await asyncio.gather(*(caller.is_warm for caller in made))
    begin = time.perf_counter()
    for caller in made:
        caller.ask()
    if endless:
        print(_BEGUN, flush=True)  # noqa: T201  # the parent process waits for it
    await asyncio.gather(*(caller.done for caller in made))
    return Load(time.perf_counter() - begin, times, bodies)


def main() -> None:
    load = asyncio.run(_ask_all(**json.load(sys.stdin), endless="--endless" in sys.argv))
    json.dump({"seconds": load.seconds, "times": load.times, "bodies": load.bodies}, sys.stdout)


if __name__ == "__main__":
    main()
