"""A host in memory except for its disk, and named steps at which it can fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from agent.artifacts.fetching import Artifacts
from agent.changes.feed import Feed
from agent.domain.addresses import Addressed
from agent.domain.containers.engine import container_name
from agent.domain.errors import DiskFullError
from agent.domain.host.capacity import Capacity
from agent.domain.host.ports import PortPool
from agent.domain.sessions.deadlines import Deadlines
from agent.domain.sessions.session import Port, Session
from agent.domain.steps import STEPS
from agent.images.images import Images
from agent.kernel.disks import Disks
from agent.kernel.usage import UsageMeter
from agent.metrics.instruments import Metrics
from agent.network.tls_certificate import CertificateFiles
from agent.network.tls_ports import TlsPorts
from agent.reconciliation.adoption import Adoption
from agent.reconciliation.reconciler import Reconciler
from agent.reconciliation.recovery import Recovery
from agent.rpc.service import AgentService
from agent.rpc.wire import timestamp_to_proto
from agent.sessions.life import Life
from agent.sessions.manager import SessionManager
from agent.sessions.prepared_containers import PreparedContainers
from agent.sessions.reservations import Reservations, StartSlots
from agent.sessions.runtime import Runtime
from agent.sessions.warm_pools import WarmPools
from agent.settings.model import AgentConfig
from agent.settings.policy import Policy
from agent.state.drain import HostDrain
from agent.state.record import Records
from tests.faults.records import recorded_sessions
from tests.support.agent.cgroups import FakeCgroups
from tests.support.agent.samples import IMAGE, MEBIBYTE, a_spec, an_id
from tests.support.fake_clock import FakeClock, until_idle
from tests.support.fake_engine import FakeEngine
from tests.support.hold import Hold
from tests.support.tasks import running
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.wire import resources_to_proto
from tiltyard.contract import FORMAT, EndReason, Protocol, Resources, State

INIT = Path("/nonexistent/init") / ("0" * 64)


def all_ports_free(_protocol: Protocol, _port: int) -> bool:
    """Report every port as free: an engine in memory publishes none on this machine."""
    return True


async def until(condition: Callable[[], bool]) -> None:
    """Let tasks run until the condition holds; bounded by the test's time limit."""
    while not condition():
        await asyncio.sleep(0)


class Steps:
    """Blocks every task that reaches a named step until its release."""

    def __init__(self) -> None:
        self._held: dict[str, Hold] = {}

    async def __call__(self, step: str) -> None:
        if step in self._held:
            await self._held[step]()

    def hold(self, step: str) -> None:
        assert step in (*STEPS, "flows")
        self._held[step] = Hold()

    async def reached(self, step: str) -> None:
        await self._held[step].reached.wait()

    def release(self, step: str) -> None:
        self._held[step].set()


class FakeSources:
    """Source translation: the containers that have it, with their addresses and ports."""

    def __init__(self) -> None:
        self.opened: dict[str, tuple[str, tuple[Port, ...]]] = {}

    async def open(self, session: Session, container: Addressed) -> None:
        self.opened[session.made_for] = (container.address, session.ports)

    async def close(self, holder: str) -> None:
        self.opened.pop(holder, None)


class Agent:
    """The parts of one run of an agent that tests use."""

    def __init__(
        self,
        folder: Path,
        engine: FakeEngine,
        clock: FakeClock,
        records: Records,
        agent_id: str,
        *,
        ports: tuple[int, int] = (20000, 20099),
        cores: int = 100,
        max_sessions: int = 1000,
        gpus: tuple[str, ...] = (),
        start_slots: int = 8,
        prepared: int = 0,
        policy: Policy | None = None,
        is_free: Callable[[Protocol, int], bool] = all_ports_free,
        disks: Disks | None = None,
        certificate: CertificateFiles | None = None,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.records = records
        self.steps = Steps()
        self.cgroups = FakeCgroups(folder / "cgroup")
        self.usage = UsageMeter(clock, self.cgroups.find)
        self.flows_forgotten: list[tuple[Port, ...]] = []
        """The ports of each conntrack flush, which can be held at "flows"."""
        self.sources = FakeSources()
        self.init_programs_in_use: list[Collection[str]] = []
        """The names of the programs that each pass keeps beside the agent's own."""
        feed = Feed()
        deadlines = Deadlines(clock)
        metrics = Metrics()
        self.runtime = Runtime(
            agent_id=agent_id,
            settings=AgentConfig(public_address="192.0.2.1", session_disk=0, prepared=prepared),
            engine=engine,
            records=records,
            clock=clock,
            deadlines=deadlines,
            feed=feed,
            metrics=metrics,
            usage=self.usage,
            init=INIT,
            forget_flows=self._forget_flows,
            sources=self.sources,
            failpoint=self.steps,
        )
        self.reservations = Reservations(
            capacity=Capacity(
                Resources(cores * 10**9, 64 * 1024 * MEBIBYTE, len(gpus)), max_sessions, gpus
            ),
            ports=PortPool(*ports, is_free),
            tls_ports=TlsPorts(
                certificate, clock, bind_address="127.0.0.1", notify=feed.host_changed
            ),
            start_slots=StartSlots(start_slots),
            drain=HostDrain(records, deadlines, feed, clock),
            disks=disks or Disks(0, folder),
            policy=policy or Policy(host_network=True),
            feed=feed,
        )
        self.images = Images(engine, feed, metrics=metrics, clock=clock)
        self.prepared = PreparedContainers(
            self.runtime, self.reservations, has_image=lambda image: image in self.images.here
        )
        self.sessions = SessionManager(self.runtime, self.reservations, self.prepared)
        self.recovery = Recovery(self.runtime, self.reservations, self.sessions)
        self.warm_pools = WarmPools(self.runtime, self.reservations, self.sessions)
        self.adoption = Adoption(self.runtime, self.reservations, self.prepared, self.sessions)
        self.reconciler = Reconciler(
            self.runtime,
            self.reservations.disks,
            self.sessions,
            self.recovery,
            images=self.images,
            prepared=self.adoption,
            learn=lambda _info: None,
            keep_init=self.init_programs_in_use.append,
        )

    async def _forget_flows(self, ports: Sequence[Port]) -> None:
        await self.steps("flows")
        self.flows_forgotten.append(tuple(ports))

    def service(
        self, describe_host: Callable[[], pb.Host], artifacts: Artifacts | None = None
    ) -> AgentService:
        """The gRPC service without certificates; with `artifacts` only if given."""
        nothing: Any = None
        return AgentService(
            sessions=self.sessions,
            warm_pools=self.warm_pools,
            prepared=self.prepared,
            images=self.images,
            artifacts=artifacts or nothing,
            engine=self.engine,
            records=self.records,
            clock=self.clock,
            feed=self.runtime.feed,
            describe_host=describe_host,
            identity=nothing,
            metrics=self.runtime.metrics,
        )

    def now(self, internal_id: str) -> Session:
        """Return the current state of a session."""
        return self.sessions.life(internal_id).session

    def recorded(self, internal_id: str) -> Session:
        """Return the record of a session."""
        found = recorded_sessions(self.records.directory(internal_id).parents[1])
        return next(each for each in found if each.internal_id == internal_id)

    async def held_at(self, step: str, work: Awaitable[Any]) -> asyncio.Task[Any]:
        """Begin work, and wait until a task has reached a step, which holds it."""
        self.steps.hold(step)
        begun = asyncio.ensure_future(work)
        await self.steps.reached(step)
        return begun

    async def reached(self, internal_id: str, state: State | None = None) -> Life:
        """Wait until a session has reached a state, or has ended."""
        life = self.sessions.life(internal_id)
        await life.wait_for(lambda now: now.state.ended if state is None else now.state is state)
        return life

    async def fail(self, session: Session, code: int = 1, *, then: float = 0.0) -> Life:
        """Let the game of a session that restarts fail, and wait until that is recorded.

        Then advance the clock by this number of seconds.
        """
        self.engine.end(container_name(session.internal_id), code)
        life = await self.reached(session.internal_id, State.RESTARTING)
        if then:
            await self.clock.advance(then)
        return life

    async def ended(self, output: bytes = b"", **changes: Any) -> Session:
        """Return a session after its stop, with its log sealed; `changes` of its spec."""
        session = await self.sessions.start(an_id(), a_spec(**changes))
        self.engine.write_log(session.container, output)
        await self.sessions.stop(session.internal_id, EndReason.STOPPED)
        await until_sealed(self, session.internal_id)
        return self.now(session.internal_id)

    def timed(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Enforce deadlines meanwhile."""
        return running(self.sessions.keep_deadlines())

    async def ready(self, internal_id: str) -> float:
        """Wait until a session is ready, after which no write of its record is pending.

        Returns the time since when it is.
        """
        life = self.sessions.life(internal_id)
        await life.wait_for(lambda session: session.ready_time is not None)
        return life.session.ready_time or 0.0

    async def lose_record(self, internal_id: str) -> None:
        """Delete the record of a session."""
        await self.ready(internal_id)
        await self.records.delete(self.now(internal_id))

    async def pass_over(self, *, after: float = 0.0) -> None:
        """Reconcile records with the engine once, and wait for the resulting work."""
        if after:
            await self.clock.advance(after)
        await self.reconciler.pass_once()
        await until_idle()

    def nothing_is_held(self) -> bool:
        """Return whether no capacity, port, deadline or translation of sources is in use."""
        ports = self.reservations.ports
        return (
            self.reservations.capacity.reserved == Resources()
            and all(ports.free(p) == ports.last - ports.first + 1 for p in Protocol)
            and self.runtime.deadlines.next_due() is None
            and self.sources.opened == {}
        )

    def directories(self) -> list[str]:
        return sorted(path.name for path in self.records.directory("x").parent.iterdir())


hosts: dict[Path, tuple[FakeEngine, FakeClock, dict[str, Any]]] = {}
"""The parts of the last agent per folder, for another run after the test."""


@contextlib.asynccontextmanager
async def an_agent(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock, *, reconcile: bool = True, **made: Any
) -> AsyncIterator[Agent]:
    """An agent on `tmp_path`; leaving ends it as SIGKILL would, its containers keep running."""
    kept = {"ports", "cores", "max_sessions", "gpus"}
    hosts[tmp_path] = engine, clock, {name: made[name] for name in kept & made.keys()}
    records = Records(tmp_path / "state")
    agent = Agent(tmp_path, engine, clock, records, await records.open(), **made)
    tls_ports = agent.reservations.tls_ports
    await tls_ports.look()
    await agent.recovery.load()
    await agent.warm_pools.load()
    engine.image_store.add(IMAGE)
    if reconcile:
        await agent.reconciler.pass_once()
    try:
        yield agent
    finally:
        parts = (agent.reconciler, agent.warm_pools, agent.sessions, agent.prepared)
        for part in (*parts, agent.images, agent.usage):
            await part.close()
        await tls_ports.stop()
        await records.close()


@dataclass
class Host:
    """A machine for successive runs of an agent; each call is a run."""

    folder: Path
    engine: FakeEngine
    clock: FakeClock

    def __call__(self, **made: Any) -> contextlib.AbstractAsyncContextManager[Agent]:
        return an_agent(self.folder, self.engine, self.clock, **made)


def full_disk(method: str) -> contextlib.AbstractContextManager[Any]:
    """Fail writes by a method of the records meanwhile, as on a full disk."""
    error = DiskFullError("its file", "no space left on device")
    return mock.patch.object(Records, method, side_effect=error)


async def assert_nothing_is_left(agent: Agent) -> None:
    assert agent.nothing_is_held()
    assert agent.directories() == []
    assert agent.sessions.all() == []
    assert await agent.engine.list(agent.runtime.agent_id) == []


async def until_sealed(agent: Agent, internal_id: str) -> Life:
    life = agent.sessions.life(internal_id)
    await life.wait_for(lambda session: session.log_sealed)
    return life


async def pulled(
    images: Images, image: str, account: str = "", *, expected_bytes: int = 0
) -> None:
    """Pull an image to its end."""
    async for _ in images.pull(image, account=account, expected_bytes=expected_bytes):
        pass


def host_report(agent: Agent) -> pb.Host:
    """Return the host report that the daemon makes of the same parts."""
    held = agent.reservations
    return pb.Host(
        format=FORMAT,
        agent_id=agent.runtime.agent_id,
        version="1.2.3",
        public_address=agent.runtime.settings.public_address,
        capacity=resources_to_proto(held.capacity.total),
        reserved=resources_to_proto(held.capacity.reserved),
        free_sessions=held.capacity.free_sessions,
        port_range_first=held.ports.first,
        port_range_last=held.ports.last,
        free_tcp_ports=held.ports.free(Protocol.TCP),
        free_udp_ports=held.ports.free(Protocol.UDP),
        image_count=len(agent.images.here),
        engine_available=agent.reconciler.engine_available,
        engine_version="27.0",
        runc_version="1.1",
        kernel_version="6.1",
        platform="linux/amd64",
        start_slots=held.start_slots.slots,
        draining=held.drain.now.draining,
        drain_revision=held.drain.now.revision,
        drain_time=timestamp_to_proto(held.drain.now.drain_time),
        warnings=("something is amiss",),
        tls=held.tls_ports.available,
        warm_pools=[
            pb.WarmPool(pool_id=pool.pool, revision=pool.revision, size=pool.size)
            for pool in agent.warm_pools.pools
        ],
    )
