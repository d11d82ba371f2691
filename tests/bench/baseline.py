"""The minimum cost of a request in Python, with which the product is compared.

An aiohttp server without middleware, checks or tokens: an empty response, a durable insert, and an
insert followed by an empty gRPC call to another process. As in the product, a thread owns the
connection, commits all waiting inserts together and answers after the `fsync`.

`python -m tests.bench.baseline FOLDER PORT` is the server; `callee` as PORT runs the gRPC server.
"""

import asyncio
import queue
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import grpc
from aiohttp import web

from tests.support.harness import Process, free_port

EMPTY = "/empty"
INSERT = "/insert"
CHAIN = "/chain"
_READY = "ready"


@contextmanager
def a_baseline() -> Iterator[str]:
    """Run both servers; yield the base address."""
    port = str(free_port())
    with TemporaryDirectory(prefix="tiltyard-bench-") as folder, ExitStack() as stack:
        for part in ("callee", port):
            process = Process(f"baseline {part}", Path(folder) / f"{part}.log")
            stack.callback(process.stop)
            command = [sys.executable, "-m", __name__, folder, part]
            process.launch(command, partial(process.has_logged, _READY))
        yield f"http://127.0.0.1:{port}"


class _Inserts:
    """The thread that owns the database."""

    def __init__(self, path: Path) -> None:
        self._waiting = queue.SimpleQueue[tuple[str, asyncio.Future[None]]]()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._serve, args=(path,), daemon=True).start()

    async def insert(self, content: str) -> None:
        """Insert; return once it is durable."""
        committed = self._loop.create_future()
        self._waiting.put((content, committed))
        await committed

    def _serve(self, path: Path) -> None:
        db = sqlite3.connect(path, isolation_level=None)
        for sql in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE content(number INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT",
        ):
            db.execute(sql)
        while True:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            db.execute("BEGIN IMMEDIATE")
            for content, _ in batch:
                db.execute("INSERT INTO content(text) VALUES (?)", (content,))
            db.execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, [committed for _, committed in batch])


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


async def _serve(folder: Path, port: int) -> None:
    inserts = _Inserts(folder / "baseline.db")
    channel = grpc.aio.insecure_channel(f"unix:{folder}/callee.sock")
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/bench/Call")

    async def empty(_: web.Request) -> web.Response:
        return web.Response()

    async def insert(request: web.Request) -> web.Response:
        await inserts.insert(await request.text())
        return web.Response()

    async def chain(request: web.Request) -> web.Response:
        await inserts.insert(await request.text())
        await call(b"", timeout=10)
        return web.Response(status=201)

    app = web.Application()
    app.add_routes([web.get(EMPTY, empty), web.put(INSERT, insert), web.post(CHAIN, chain)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    click.echo(_READY)
    await asyncio.Event().wait()


async def _serve_callee(folder: Path) -> None:
    async def call(_request: bytes, _context: Any) -> bytes:
        return b""

    server = grpc.aio.server()
    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(call)
    handler = grpc.method_handlers_generic_handler("bench", {"Call": method})
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{folder}/callee.sock")
    await server.start()
    click.echo(_READY)
    await server.wait_for_termination()


async def main(folder: str, part: str) -> None:
    """Serve until SIGTERM."""
    if part == "callee":
        await _serve_callee(Path(folder))
    else:
        await _serve(Path(folder), int(part))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
