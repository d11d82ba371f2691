"""A relay with latency, which counts its traffic."""

import asyncio

from tests.support.serving_thread import ServingThread

_CHUNK = 65536

_Late = asyncio.Queue[tuple[float, bytes]]


class SlowLink(ServingThread):
    """Relays TCP from `address` to `host:port` with `delay` seconds each way."""

    def __init__(self, host: str, port: int, delay: float) -> None:
        super().__init__("slow-link")
        self._to = (host, port)
        self._delay = delay
        self.connections = 0
        self.address = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, onward = await asyncio.open_connection(*self._to)
        except OSError:
            writer.close()
            return
        ends = (writer, onward)
        for source, sink in ((reader, onward), (there, writer)):
            late: _Late = asyncio.Queue()
            for work in (self._hold_back(source, late), _deliver(late, sink, ends)):
                task = asyncio.create_task(work, name="slow link")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _hold_back(self, source: asyncio.StreamReader, late: _Late) -> None:
        data = b"..."
        while data:
            try:
                data = await source.read(_CHUNK)
            except OSError:
                data = b""
            late.put_nowait((self._loop.time() + self._delay, data))


async def _deliver(
    late: _Late, sink: asyncio.StreamWriter, ends: tuple[asyncio.StreamWriter, ...]
) -> None:
    """Pass on due chunks; an empty chunk ends both connections."""
    loop = asyncio.get_running_loop()
    try:
        while (chunk := await late.get())[1]:
            await asyncio.sleep(chunk[0] - loop.time())
            sink.write(chunk[1])
            await sink.drain()
    except OSError:
        pass
    finally:
        for end in ends:
            end.close()
