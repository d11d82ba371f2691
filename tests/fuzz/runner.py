"""Sends requests to a whole control plane and judges what comes back and what is left."""

import asyncio
import gc
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self
from unittest.mock import patch

from aiohttp import web

import tests.support.controlplane.system as system_module
from controlplane.app.control_plane import ControlPlane
from controlplane.http.edge import Limits
from tests.fuzz.checker import WrongAnswerError, check
from tests.fuzz.draft import with_tokens
from tests.fuzz.generator import Sent, make
from tests.fuzz.templates import DOOMED, EDITED, ENDED, LIVE, MADE, SHOWN
from tests.support.controlplane.raw_http import RawAnswer, Wire
from tests.support.controlplane.system import System, eventually

WORKERS = 48
LIMITS = Limits(header=2.0, body=3.0)
"""What is cut off is waited for by the server, and then by a worker: shorter than in earnest."""
MAX_FAILURES = 20
BYTES_SHOWN = 6000
_HOST_CORES = 60
_FAKE = ("AioServer.", "Queue.get")


@dataclass
class Report:
    """What came of a run."""

    seed: int
    sent: int = 0
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    failures: list[str] = field(default_factory=list)

    def fail(self, sent: Sent, reason: str) -> None:
        """Note a failure, with all it takes to repeat it."""
        shown = repr(sent.data[:BYTES_SHOWN]) + (
            f" and {len(sent.data) - BYTES_SHOWN} bytes more"
            if len(sent.data) > BYTES_SHOWN
            else ""
        )
        self.failures.append(
            f"request {sent.number} of seed {self.seed} ({sent.route}; {', '.join(sent.done)}):\n"
            f"  {reason}\n  {shown}\n"
            f"  again: make fuzz SEED={self.seed} ONLY={sent.number}"
        )


class Log(logging.Handler):
    """Keeps what must not be logged: errors and tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.bad: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.ERROR or "Traceback" in text:
            self.bad.append(text)


async def run(folder: Path, seed: int, numbers: Iterable[int]) -> Report:
    """Send the requests of these numbers to a new system; what is wrong stands in the report."""
    report, before = Report(seed), asyncio.all_tasks()
    with _logged() as log:
        async with _world(folder) as system:
            quiet = _tasks()
            await _send_all(system, report, iter(numbers))
            await _settle(system, report, quiet)
        left = asyncio.all_tasks() - before
        if left:
            _, left = await asyncio.wait(left, timeout=2)
        report.failures += [f"left the task {task!r}" for task in left]
        gc.collect()  # tasks whose exception nobody has read are logged when they go
    report.failures += [f"logged: {text}" for text in log.bad]
    return report


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[System]:
    """A system with applications, sessions and a token of every kind."""
    limited = partial(ControlPlane, limits=LIMITS)
    with patch.object(system_module, "ControlPlane", limited):
        system = System(folder)
        system.agent.host.capacity.nano_cpus = _HOST_CORES * 10**9
        system.agent.log_follow.set()
        async with system:
            await system.make_application()
            await system.make_application(tag=None, name=EDITED)
            for session_id in (*LIVE, *DOOMED, SHOWN, ENDED):
                assert (await system.start(id=session_id)).status == 201
            assert (await system.call("DELETE", f"/session/{ENDED}")).status == 204
            for name in MADE:
                made = await system.call("POST", "/operator/account", json={"name": name})
                assert made.status == 201, made.text
            system.tokens |= {
                "operator": system.operator_token,
                "reader": await system.make_token(name="reader", scopes=["session:read"]),
                "starter": await system.make_token(name="starter", scopes=["session:start"]),
                "expired": await system.make_token(name="expired", scopes=["session:read"]),
                "spare": await system.make_token(name="spare", scopes=["session:read"]),
                "revoked": await system.make_token(name="revoked", scopes=["session:read"]),
            }
            await system.rows("UPDATE token SET expire_ms=1 WHERE name='expired'")
            await system.rows("UPDATE token SET revoked_ms=1 WHERE name='revoked'")
            yield system


async def _send_all(system: System, report: Report, numbers: Iterator[int]) -> None:
    async with asyncio.TaskGroup() as group:
        for worker in range(WORKERS):
            group.create_task(_work(system, report, numbers), name=f"worker {worker}")


async def _work(system: System, report: Report, numbers: Iterator[int]) -> None:
    """Send one request after the other, on one connection as long as it may be kept."""
    port = int(system.control_plane.base_url.rpartition(":")[2])
    async with Client(port) as client:
        for number in numbers:
            if len(report.failures) >= MAX_FAILURES:
                return
            sent = make(report.seed, number)
            data = with_tokens(sent.data, system.tokens)
            report.sent += 1
            try:
                answer = await client.ask(sent, data)
                if answer is not None:
                    report.statuses[sent.route][answer.status] += 1
                check(sent, data, answer, system.tokens)
            except WrongAnswerError as error:
                body = answer.body[:1000] if answer is not None else b""
                report.fail(sent, f"{error}: {body!r}")
            except (TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
                report.fail(sent, f"no whole answer: {error!r}")


class Client:
    """A connection that is kept while it can be, and others for requests that need their own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._kept: Wire | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._drop()

    async def ask(self, sent: Sent, data: bytes) -> RawAnswer | None:
        """Send a request and read its first answer; None when there is none."""
        method = data.lstrip(b"\r\n").partition(b" ")[0].decode("latin-1")
        if sent.alone:
            async with Wire(self._port) as wire:
                wire.send(data)
                return await wire.answer(method)
        if self._kept is not None:
            answer = await self._ask_on(self._kept, data, method)
            if answer is not None:
                return answer
            await self._drop()  # it had been closed between two requests, as clients must expect
        self._kept = await Wire(self._port).__aenter__()
        return await self._ask_on(self._kept, data, method)

    async def _ask_on(self, wire: Wire, data: bytes, method: str) -> RawAnswer | None:
        answer = None
        try:
            wire.send(data)
            answer = await wire.answer(method)
        finally:
            if answer is None or answer.headers.get("connection", "").lower() == "close":
                await self._drop()
        return answer

    async def _drop(self) -> None:
        if self._kept is not None:
            await self._kept.__aexit__()
            self._kept = None


async def _settle(system: System, report: Report, quiet: Counter[str]) -> None:
    """Check that the server is as ready as before, and that nothing is left of the requests."""
    ready = await system.call("GET", "/readyz")
    if ready.status != 200:
        report.failures.append(f"the server is not ready: {ready.text}")
    for account in ("alice", "bob"):
        listed = await system.call("GET", "/session?all=1", account=account)
        for session in listed.json["sessions"]:
            if session["status"] not in {"exited", "dead"}:
                ended = await system.call("DELETE", f"/session/{session['id']}", account=account)
                assert ended.status in {204, 409}, ended.text
    await system.http.close()
    try:
        await system.nothing_is_left()
        await eventually(lambda: not _tasks() - quiet)
    except TimeoutError:
        left = dict(_tasks() - quiet)
        report.failures.append(f"something is left behind; tasks: {left} of {asyncio.all_tasks()}")


def _tasks() -> Counter[str]:
    """Count the tasks of the control plane by the function that each runs.

    Those of the fake agent and registry come and go. A host that is dialled again on a busy
    machine has a new task in place of an old one, which the count does not show.
    """
    running = (task.get_coro() for task in asyncio.all_tasks())
    return Counter(
        getattr(coroutine, "__qualname__", "") for coroutine in running if not _is_fake(coroutine)
    )


def _is_fake(coroutine: object) -> bool:
    frame = getattr(coroutine, "cr_frame", None)
    # The control plane's own connections are of a subclass.
    connection = frame is not None and type(frame.f_locals.get("self")) is web.RequestHandler
    return connection or getattr(coroutine, "__qualname__", "").startswith(_FAKE)


@contextmanager
def _logged() -> Iterator[Log]:
    """Listen to every logger, at the product's own level."""
    log, root = Log(), logging.getLogger()
    level = root.level
    root.addHandler(log)
    root.setLevel(logging.INFO)
    try:
        yield log
    finally:
        root.removeHandler(log)
        root.setLevel(level)
