"""Agents on engines in memory and a control plane on a real database, all in virtual time.

Each program can be killed at any step.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from agent.domain.sessions.session import Session
from controlplane.domain.access.callers import Caller
from controlplane.domain.access.start_rate import StartRate
from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.tags import Tag
from controlplane.domain.errors import TiltyardError
from controlplane.domain.placement.placement import Wanted
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.reports import Reports
from controlplane.fleet.host_maker import HostMaker
from controlplane.fleet.queue import HostQueue
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.metrics.starts import StartMetrics
from controlplane.operators.agents import Agents
from controlplane.pki.tickets import TicketKey
from controlplane.sessions.attempt import Attempts
from controlplane.sessions.claim import Claims
from controlplane.sessions.plans import Plans
from controlplane.sessions.sessions import Sessions
from controlplane.sessions.start import Starts
from controlplane.sessions.start_request import StartRequest
from controlplane.settings.model import AgentConfig, Config
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.sqlite import SqliteDatabase, commit_batch, connect_writer
from controlplane.storage.engine.store import Store
from controlplane.storage.engine.worker import Job
from controlplane.storage.tables.hosts.fleet import declare
from controlplane.storage.tables.sessions.sessions import drop_unattempted, end_attempt, free
from tests.flow.bad_network import Line, MemoryClient
from tests.flow.virtual_time import VirtualClock, VirtualLoop
from tests.support.agent import hosts
from tests.support.agent.samples import IMAGE
from tests.support.controlplane.transactions import run_sql
from tests.support.fake_engine import FakeEngine
from tiltyard.contract import NetworkMode, PortRequest, Resources
from tiltyard.contract import Protocol as WireProtocol
from tiltyard.runtime.failpoints import no_failpoint

_T = TypeVar("_T")
_P = ParamSpec("_P")

ACCOUNTS = ("alice", "bob")
GAME = "game"


class LoopStore(Store):
    """The store without its thread; it ends with its program."""

    def __init__(self, path: Path, given_up: Callable[[str], object]) -> None:
        """Call `given_up` with each given-up attempt after the commit."""
        super().__init__(path)
        self._given_up = given_up
        self._db: SqliteDatabase | None = None

    async def open(self) -> None:
        self._db = connect_writer(self._path)

    async def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    async def run(
        self,
        transaction: Callable[Concatenate[Database, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        await asyncio.sleep(0)
        if self._db is None:
            raise asyncio.CancelledError
        future: Any = asyncio.get_running_loop().create_future()
        job = Job(lambda db: transaction(db, *args, **kwargs), future)
        changes = commit_batch(self._db, [job], metrics=self._metrics)
        self.changes.publish(changes)
        job.resolve()
        if future.exception() is None and transaction in {end_attempt, free}:
            attempt: Any = kwargs["attempt"] if transaction is free else args[2]
            if attempt is not None and attempt.is_unanswered:
                self._given_up(attempt.internal_id)
        await asyncio.sleep(0)
        if self._db is None:
            raise asyncio.CancelledError
        return cast("_T", future.result())

    async def look(
        self, at: Callable[Concatenate[Database, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        return await self.run(at, *args, **kwargs)

    def copy(self, to: Path) -> None:
        assert self._db is not None
        to.unlink(missing_ok=True)
        self._db.execute("VACUUM INTO :to", {"to": str(to)})

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        assert self._db is not None
        return self._db.execute(sql).fetchall()


class Box:
    """A host: a lasting engine and disk, and an agent that comes and goes."""

    def __init__(self, loop: VirtualLoop, folder: Path, name: str, skew: float) -> None:
        self.name = name
        self.line = Line(loop)
        self._loop = loop
        self._folder = folder
        self._clock = cast("Any", VirtualClock(loop, skew))
        self.engine = FakeEngine(self._clock)
        self._agent: hosts.Agent | None = None
        self._stack = AsyncExitStack()

    @property
    def is_up(self) -> bool:
        return self._agent is not None

    @property
    def agent(self) -> hosts.Agent:
        assert self._agent is not None
        return self._agent

    @property
    def live(self) -> list[Session]:
        return [each for each in self.agent.sessions.all() if not each.state.ended]

    @property
    def running(self) -> set[str]:
        """Internal ids of running containers."""
        return {held.spec.internal_id for held in self.engine.all if held.process is not None}

    async def boot(self) -> None:
        if self._agent is None:
            await self._loop.spawn(self, self._boot(), f"boot {self.name}")

    async def kill(self) -> None:
        """End it as SIGKILL does."""
        if self._agent is not None:
            self._agent = None
            self.line.disconnect()
            await self._loop.end(self)
            await self._stack.aclose()

    async def _boot(self) -> None:
        agent = await self._stack.enter_async_context(
            hosts.an_agent(self._folder, self.engine, self._clock, max_sessions=20)
        )
        self._agent = agent
        self.line.connect(agent.service(lambda: hosts.host_report(agent)), self)


class _Applications:
    async def startable(self, caller: Caller, name: str) -> tuple[Application, tuple[Tag, ...]]:
        game = Application(
            account=caller.account,
            name=name,
            registry="local",
            repository="studio/game",
            tag_keep=5,
            network_mode=NetworkMode.BRIDGE,
            node_pool="default",
            regions=("local",),
            limits=Resources(10**9, 64 * 2**20),
            reservation=Resources(10**8, 32 * 2**20),
            ports=(PortRequest(7777, WireProtocol.UDP),),
        )
        return game, (Tag("v1", IMAGE.partition("@")[2], IMAGE),)


class _Tags:
    async def choose_tag(
        self, _: object, tags: tuple[Tag, ...], *__: object, **___: object
    ) -> tuple[Tag, None]:
        return tags[0], None


class Control:
    """The part of a control plane that starts, stops and reconciles sessions."""

    def __init__(
        self,
        loop: VirtualLoop,
        state: Path,
        boxes: list[Box],
        given_up: Callable[[str], object] = lambda _: None,
        lost_after: float = 24 * 3600.0,
    ) -> None:
        self._loop = loop
        self.alive = True
        self.store = store = LoopStore(state / "controlplane.db", given_up)
        self._config = Config(
            state_dir=state,
            agents=tuple(
                AgentConfig(name=b.name, address="unix:/x", region="local") for b in boxes
            ),
        )
        lines = {box.name: box.line for box in boxes}
        self._clock = clock = cast("Any", VirtualClock(loop))
        self._key = TicketKey(state / "ticket.key", clock)
        reports = Reports(store, read_ticket=self._key.read, keep_ended=7 * 86_400.0)
        maker = HostMaker(
            store,
            reports,
            login_for=cast("Any", None),
            dial=lambda row: MemoryClient(
                lines[row.name], lambda: self.alive, partial(self._key.ticket, row.name)
            ),
            lost_after=lost_after,
            clock=clock,
            random=Random(0),
        )
        self.fleet = Fleet(
            store,
            maker,
            unresponsive_after=5.0,
            unreachable_after=30.0,
            clock=clock,
            random=Random(0),
        )
        pools = StandbyPools(store, self.fleet, clock=clock, random=Random(0))
        claims = Claims(self.fleet, pools)
        self.starts = Starts(
            plans=Plans(cast("Any", _Applications()), cast("Any", _Tags()), claims),
            store=store,
            fleet=self.fleet,
            attempts=Attempts(
                fleet=self.fleet,
                reports=reports,
                clock=clock,
                reach=no_failpoint,
                metrics=StartMetrics(),
            ),
            queue=HostQueue(self.fleet, max_waiting=1000, clock=clock),
            start_timeout=8.0,
            rate=StartRate(1000.0, 1000),
            claims=claims,
            clock=clock,
        )
        self.agents = Agents(
            store,
            self.fleet,
            standbys=pools,
            declared={"agent": frozenset(lines)},
            clock=clock,
        )
        self._stops = Sessions(store=store, fleet=self.fleet, starts=self.starts, clock=clock)

    async def open(self) -> None:
        await self._loop.spawn(self, self._open(), "open")

    async def _open(self) -> None:
        await self.store.open()
        for account in ACCOUNTS:
            sql = "INSERT OR IGNORE INTO account(name, created_ms) VALUES (:name, 0)"
            await self.store.run(run_sql, sql, {"name": account})
        await self.store.run(
            declare,
            regions=self._config.regions,
            node_pools=self._config.node_pools,
            registries=(),
            agents=[entry.agent for entry in self._config.agents],
        )
        await self.store.run(drop_unattempted, self._clock.time())
        await self._key.open()
        await self.fleet.load()
        self._loop.spawn(self, self.fleet.run(), "fleet")

    def start(self, account: str, session_id: str) -> asyncio.Task[bool]:
        """POST /session; return whether the status is 201."""
        request = StartRequest(location="local", image=GAME, id=session_id)
        work = self._answered(self.starts.start(_caller(account), request))
        return self._loop.spawn(self, work, "POST")

    def stop(self, account: str, session_id: str) -> asyncio.Task[bool]:
        """DELETE /session; return whether the status is 204."""
        work = self._answered(self._stops.stop(_caller(account), session_id))
        return self._loop.spawn(self, work, "DELETE")

    async def status(self, account: str, session_id: str) -> str:
        """Return the status in GET /session/{id}."""
        return (await self._stops.get(_caller(account), session_id)).status

    def may_place(self) -> bool:
        """Return whether a host has room for one more session."""
        return bool(self.fleet.hosts_with_room("local", "default", Wanted(IMAGE, Resources(), ())))

    async def _answered(self, work: Any) -> bool:
        try:
            await work
        except TiltyardError:
            return False
        return True

    async def crash(self) -> None:
        """End it as SIGKILL does."""
        self.alive = False
        await self.store.close()
        await self._loop.end(self)


def _caller(account: str) -> Caller:
    return Caller(account, "token", frozenset())


class SmallFleet:
    """Hosts and their control plane on a loop of their own."""

    control: Control

    def begin(self, folder: Path, skews: Iterable[float]) -> None:
        """Boot a host for each skew of a wall clock."""
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.state = folder / "plane"
        self.boxes: list[Box] = []
        for number, skew in enumerate(skews):
            (folder / f"h{number}").mkdir()
            self.boxes.append(Box(self.loop, folder / f"h{number}", f"h{number}", skew))
            self.run(self.boxes[-1].boot())

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        self.run(self.control.crash())
        for box in self.boxes:
            self.run(box.kill())
            self.run(box.line.close())
        self.loop.close()
        asyncio.set_event_loop(None)


class OneHost(SmallFleet):
    """A control plane, and a host with the session `x` of alice."""

    def __init__(
        self, folder: Path, *, skew: float = 0.0, lost_after: float = 24 * 3600.0
    ) -> None:
        self.begin(folder, [skew])
        [self.box] = self.boxes
        self._lost_after = lost_after
        self.restart()
        self.wait(1.0)
        assert self.starts("x")
        self.wait(1.0)  # until it is reported as ready

    @property
    def status(self) -> str:
        return str(self.run(self.control.status("alice", "x")))

    def link(self) -> Any:
        return self.control.fleet.host("h0")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Read or write the database."""
        return list(self.run(self.control.store.run(lambda db: db.execute(sql).fetchall())))

    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def starts(self, session_id: str) -> bool:
        return bool(self.run(self.control.start("alice", session_id)))

    def stops(self, session_id: str) -> bool:
        return bool(self.run(self.control.stop("alice", session_id)))

    def crash(self) -> None:
        self.run(self.control.crash())

    def restart(self) -> None:
        self.control = Control(self.loop, self.state, self.boxes, lost_after=self._lost_after)
        self.run(self.control.open())

    def disconnect(self, how: str) -> None:
        """Disconnect the host silently, or kill its agent."""
        if how == "cut":
            self.box.line.cut()
        else:
            self.run(self.box.kill())

    def reconnect(self, how: str) -> None:
        if how == "cut":
            self.box.line.restore()
        else:
            self.run(self.box.boot())


def remove_database(state: Path) -> None:
    for path in state.glob("controlplane.db*"):
        path.unlink()


def restore_database(copy: Path, state: Path) -> None:
    """Restore the database from a copy."""
    remove_database(state)
    with sqlite3.connect(copy) as source, sqlite3.connect(state / "controlplane.db") as target:
        source.backup(target)
    source.close()
    target.close()
