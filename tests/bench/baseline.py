"""The least that a request can cost in this language: what the product is held against.

An aiohttp server without middleware, checks or tokens: an empty answer, one durable insert, and an
insert followed by an empty gRPC call to another process. The insert is made as the product makes
its own: by a thread that owns the connection, those that wait together in one commit, answered
after its `fsync`.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
from aiohttp import web

from tests.bench import empty_call
from tests.bench.programs import Program, run, until_told
from tests.support.harness import Process, free_port

EMPTY, INSERT, CHAIN = "/empty", "/insert", "/chain"


class Baseline(NamedTuple):
    """Where it answers, and the processes of its own and of what it calls."""

    url: str
    processes: tuple[Process, ...]


@contextmanager
def a_baseline() -> Iterator[Baseline]:
    """Run it, and what it calls."""
    port = free_port()
    with (
        Program(empty_call.__name__) as callee,
        Program(__name__, port=port, callee=str(callee.folder / empty_call.SOCKET)) as server,
    ):
        yield Baseline(f"http://127.0.0.1:{port}", (server.process, callee.process))


class _Inserts:
    """The thread that owns the database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: queue.SimpleQueue[tuple[str, asyncio.Future[None]] | None]
        self._waiting = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    async def insert(self, content: str) -> None:
        """Return once it is on the disk."""
        committed = self._loop.create_future()
        self._waiting.put((content, committed))
        await committed

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        db = sqlite3.connect(self._path, isolation_level=None)
        for sql in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE content(number INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT",
        ):
            db.execute(sql)
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while not self._waiting.empty() and (other := self._waiting.get()) is not None:
                batch.append(other)
            db.execute("BEGIN IMMEDIATE")
            for content, _ in batch:
                db.execute("INSERT INTO content(text) VALUES (?)", (content,))
            db.execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, [committed for _, committed in batch])
        db.close()


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


async def serve(folder: str, port: int, callee: str) -> None:
    inserts = _Inserts(Path(folder) / "baseline.db")
    async with grpc.aio.insecure_channel(f"unix:{callee}") as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            empty_call.METHOD
        )

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
        app.router.add_get(EMPTY, empty)
        app.router.add_put(INSERT, insert)
        app.router.add_post(CHAIN, chain)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await until_told()
        await runner.cleanup()
    inserts.close()


if __name__ == "__main__":
    run(serve)
