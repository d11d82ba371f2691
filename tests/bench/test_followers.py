"""The readers of the benchmark measure how late each line came."""

import asyncio
import contextlib
import itertools
from datetime import UTC, datetime

from tests.bench.followers import lags

LATE = 0.2
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(number: int) -> bytes:
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = f"{number:06} {time} tick\n".encode()
    return f"{len(line):x}\r\n".encode() + line + b"\r\n"


async def follow() -> list[float]:
    """Have one follow a server that gives each line LATE seconds after the time in it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            for number in itertools.count(1):
                line = chunk(number)
                await asyncio.sleep(LATE)
                writer.write(line)
                await writer.drain()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        return await lags(f"http://{host}:{port}", "token", "a session", 1, 3)


async def test_the_lag_of_a_line_counts_from_the_time_in_it() -> None:
    found = await follow()
    assert len(found) > 1
    assert min(found) >= LATE - 0.001  # the time in a line is in whole milliseconds
