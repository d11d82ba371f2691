"""The process of a load: reads requests from stdin, sends them, and writes the result to stdout.

A client library would use more CPU than the measured server: aiohttp's client takes twice the time
of its server. So each caller is an `asyncio.Protocol` with one kept-alive connection, sends
prepared bytes, and parses only the status and the end of a response.
"""

import asyncio
import itertools
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence

BEGUN = "asking"  # The line by which an endless load says that it has begun
ENDLESS = "--endless"

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_WARM_UP = b"GET /nothing-is-here HTTP/1.1\r\nHost: bench\r\n\r\n"


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
        for waiting in (self.is_warm, self.done):
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"hung up: {error}"))


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
) -> dict[str, object]:
    """Send the requests and return the fields of a `Load`."""
    prepared = [(content.encode(), b"%d" % expect) for content, expect in asks]
    encoded = itertools.cycle(prepared) if endless else iter(prepared)
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
        print(BEGUN, flush=True)  # noqa: T201  # the parent process waits for it
    await asyncio.gather(*(caller.done for caller in made))
    return {"seconds": time.perf_counter() - begin, "times": times, "bodies": bodies}


def main() -> None:
    load = asyncio.run(_ask_all(**json.load(sys.stdin), endless=ENDLESS in sys.argv))
    json.dump(load, sys.stdout)


if __name__ == "__main__":
    main()
