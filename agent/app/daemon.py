"""The agent: its components, started in order and stopped in stages."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

from agent.artifacts.fetching import Artifacts
from agent.artifacts.spool_room import SpoolRoom
from agent.changes.feed import Feed
from agent.domain.clock import HostClock
from agent.domain.containers.engine import Engine, EngineInfo
from agent.domain.host.capacity import Capacity
from agent.domain.host.ports import PortPool
from agent.domain.sessions.deadlines import Deadlines
from agent.domain.steps import STEPS
from agent.images.images import Images
from agent.init.binary import init_program
from agent.kernel.disks import Disks
from agent.kernel.usage import UsageMeter
from agent.limits.disk_limits import DiskLimits
from agent.limits.kernel_limits import LimitWatch
from agent.limits.log_limits import LogLimits
from agent.metrics.instruments import Metrics
from agent.metrics_endpoint.collector import HostGauges
from agent.metrics_endpoint.listener import MetricsListener
from agent.network.conntrack import Conntrack
from agent.network.firewall import Firewall
from agent.network.firewall_watch import FirewallWatch, published_ports
from agent.network.led_ports import HostPort
from agent.network.port_probe import PortProbe
from agent.network.sources.nat_rules import Guard
from agent.network.sources.source_translation import KnownAddresses, SourceTranslation
from agent.network.tls_gate import Limits
from agent.network.tls_ports import TlsPorts
from agent.reconciliation.adoption import Adoption
from agent.reconciliation.reconciler import Reconciler
from agent.reconciliation.recovery import Recovery
from agent.rpc import wire
from agent.rpc.renewal import HostIdentity
from agent.rpc.service import AgentService
from agent.rpc.tls_server import GRACE_SECONDS, TlsServer, new_server
from agent.sessions.manager import SessionManager
from agent.sessions.prepared_containers import PreparedContainers
from agent.sessions.reservations import Reservations, StartSlots
from agent.sessions.runtime import Runtime
from agent.sessions.warm_pools import WarmPools
from agent.settings.model import LARGEST_SPOOL_BYTES, AgentConfig
from agent.settings.policy import load_policy
from agent.state import init_programs
from agent.state.drain import HostDrain
from agent.state.record import Records, disk
from tiltyard.agent.bounds import MAX_SENTENCE
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.agent.wire import resources_to_proto
from tiltyard.contract import FORMAT, MEBI, NANO, Protocol, Resources
from tiltyard.runtime.failpoints import failpoint
from tiltyard.runtime.logging.errors import errors_counted
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.metrics import loop_lag
from tiltyard.runtime.systemd import READY, STOPPING, Notifier, Supervision
from tiltyard.runtime.tasks import run_again

log = get_logger(__name__)

VERSION = metadata.version("tiltyard")
KEPT_FOR_THE_HOST_BYTES = 512 * MEBI
"""Memory reserved for the engine, the agent and the kernel when `ram` is not set."""
PREPARED_BYTES = 8 * MEBI
"""Memory reserved for each prepared container: its processes, the engine's and their tables."""
STAGE_SECONDS = 5.0  # Shutdown timeout per component; that of the whole process is in `serve`
LOOP_PAUSE_SECONDS = 1.0  # Pause after the first unexpected error of a loop
SOCKET_MODE = 0o660
"""Owner and group can start containers, which is equivalent to root; others cannot."""


class Daemon:
    """One agent. `run` serves until it is cancelled; containers keep running."""

    def __init__(
        self,
        config: AgentConfig,
        engine: Engine,
        clock: HostClock,
        is_free: Callable[[Protocol, int], bool] | None = None,
        *,
        supervision: Supervision | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """`is_free` returns whether no other process uses a port."""
        self._config = config
        self.metrics = metrics or Metrics()
        self._engine = engine
        self._clock = clock
        self._records = Records(config.state_dir)
        self.feed = Feed()
        self._policy = load_policy(config.policy)
        disks = Disks(config.disk_reserve * MEBI, config.state_dir)
        self.images = Images(
            self._engine,
            self.feed,
            self._policy,
            metrics=self.metrics,
            clock=clock,
            disks=disks,
            measure=lambda: self._records.run(disks.look),
        )
        self.conntrack = Conntrack()
        self._sources = SourceTranslation(
            KnownAddresses(config.public_address, config.bind_address),
            Guard(config.firewall_bridges, config.ports()),
            clock,
            is_reconciled=lambda: self.sessions.reconciled,
            notify=self.feed.host_changed,
        )
        self._tls_ports = TlsPorts(
            config.certificate_files(),
            clock,
            bind_address=config.bind_address,
            notify=self.feed.host_changed,
            limits=Limits(
                config.tls_max_connections,
                config.tls_max_connections_per_port,
                config.tls_max_connections_per_address,
            ),
        )
        bind_address = ipaddress.ip_address(config.bind_address)
        self._firewall = FirewallWatch(
            Firewall(config.firewall()),
            clock,
            bind_address=bind_address,
            published=lambda: published_ports(self.sessions.all(), bind_address.version),
            held=self._held_ports,
            notify=self.feed.host_changed,
        )
        self._usage = UsageMeter(clock)
        self._init = init_program()
        self._notifier = Notifier(supervision or Supervision(), clock.sleep)
        self._deadlines = Deadlines(clock)
        self._info: EngineInfo | None = None
        is_unused = is_free or PortProbe(config.bind_address).is_free
        self._reservations = Reservations(
            capacity=Capacity(self._allocatable(), config.max_sessions, config.gpus),
            ports=PortPool(
                *config.ports(),
                lambda protocol, port: (
                    not self._firewall.leads_elsewhere(protocol, port)
                    and is_unused(protocol, port)
                ),
            ),
            tls_ports=self._tls_ports,
            start_slots=StartSlots(config.start_slots),
            drain=HostDrain(self._records, self._deadlines, self.feed, clock),
            disks=disks,
            policy=self._policy,
            feed=self.feed,
        )
        self.serving = asyncio.Event()
        """Set once the socket answers, possibly before reconciliation."""

    async def run(self) -> None:
        """Serve until cancelled; a loop with an unexpected error runs again after a pause."""
        if self._config.failpoint:
            log.warning("a failpoint is active", name=self._config.failpoint)
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(errors_counted(self.metrics.internal_errors.inc))
            stack.push_async_callback(_bounded, "records", self._records.close)
            stack.push_async_callback(_bounded, "engine", self._engine.close)
            stack.push_async_callback(_bounded, "kernel", self._close_kernel)
            stack.push_async_callback(_bounded, "usage", self._usage.close)
            stack.push_async_callback(self._tls_ports.stop)  # it never waits
            runtime = await self._make_runtime()
            await self._tls_ports.look()
            self.prepared = PreparedContainers(
                runtime, self._reservations, has_image=lambda image: image in self.images.here
            )
            stack.push_async_callback(_bounded, "prepared containers", self.prepared.close)
            self.sessions = sessions = SessionManager(runtime, self._reservations, self.prepared)
            recovery = Recovery(runtime, self._reservations, sessions)
            await recovery.load()
            stack.push_async_callback(_bounded, "sessions", sessions.close)
            self.warm_pools = WarmPools(runtime, self._reservations, sessions)
            await self.warm_pools.load()
            stack.push_async_callback(_bounded, "warm pools", self.warm_pools.close)
            stack.push_async_callback(_bounded, "images", self.images.close)
            self.reconciler = Reconciler(
                runtime,
                self._reservations.disks,
                sessions,
                recovery,
                images=self.images,
                prepared=Adoption(runtime, self._reservations, self.prepared, sessions),
                learn=self._learn,
                keep_init=partial(init_programs.keep, self._config.state_dir, self._init),
            )
            stack.push_async_callback(_bounded, "reconciler", self.reconciler.close)
            self.log_limits = LogLimits(runtime, sessions)
            stack.push_async_callback(_bounded, "firewall", self._firewall.close)
            await stack.enter_async_context(self._served(runtime))
            self.serving.set()
            self._notifier.notify(READY)
            stack.callback(self._notifier.notify, STOPPING)
            async with asyncio.TaskGroup() as loops:
                for name, run in self._loops(runtime):
                    again = run_again(run, self._clock, first=LOOP_PAUSE_SECONDS)
                    loops.create_task(again, name=name)

    def _loops(
        self, runtime: Runtime
    ) -> Iterator[tuple[str, Callable[[], Coroutine[None, None, None]]]]:
        yield "reconciler", self.reconciler.run
        yield "listener", self.reconciler.listen
        yield "warm-pools", self.warm_pools.run
        yield "prepared", self.prepared.run
        yield "usage", self._usage.run
        yield "disk-limits", DiskLimits(runtime, self._reservations.disks, self.sessions).run
        yield "kernel-limits", LimitWatch(runtime, self.sessions).run
        yield "log-limits", self.log_limits.run
        yield "tls-ports", self._tls_ports.run
        yield "source-translation", self._sources.run
        yield "watchdog", self._notifier.beat
        yield "deadlines", self.sessions.keep_deadlines
        yield "loop-lag", partial(loop_lag.watch, self.metrics.loop_lag.observe)
        if self._config.metrics_listen:
            yield "metrics", self._metrics_listener(runtime).run
        if self._config.rpc_listen:
            yield "tls-server", self.tls_server.run
        if self._config.firewall_bridges:
            yield "firewall", self._firewall.run

    async def _close_kernel(self) -> None:
        await asyncio.gather(self.conntrack.close(), self._sources.finish())

    async def _install_init(self) -> Path:
        """Put the init of containers on the disk; while that is full, each pass tries again."""
        state_dir = self._config.state_dir
        try:
            return await self._records.run(init_programs.install, state_dir, self._init)
        except OSError as error:
            log.warning("cannot write the init of containers", error=str(error))
            return init_programs.installed(state_dir, self._init.sha256)

    async def _make_runtime(self) -> Runtime:
        return Runtime(
            agent_id=await self._records.open(),
            settings=self._config,
            engine=self._engine,
            records=self._records,
            clock=self._clock,
            deadlines=self._deadlines,
            feed=self.feed,
            metrics=self.metrics,
            usage=self._usage,
            init=await self._install_init(),
            forget_flows=self.conntrack.forget,
            sources=self._sources,
            failpoint=failpoint(self._config.failpoint, STEPS),
        )

    @contextlib.asynccontextmanager
    async def _served(self, runtime: Runtime) -> AsyncIterator[None]:
        server = new_server()
        identity = HostIdentity(self._config.state_dir, self._records.run, self._clock.time)
        service = AgentService(
            sessions=self.sessions,
            warm_pools=self.warm_pools,
            prepared=self.prepared,
            images=self.images,
            artifacts=Artifacts(
                self._engine,
                self._records,
                SpoolRoom(self._config.artifact_spool_bytes, LARGEST_SPOOL_BYTES),
            ),
            engine=self._engine,
            records=self._records,
            clock=self._clock,
            feed=self.feed,
            describe_host=lambda: self._report(runtime),
            identity=identity,
            metrics=self.metrics,
        )
        add_services = partial(agent_pb2_grpc.add_AgentServiceServicer_to_server, service)
        add_services(server)
        self.tls_server = TlsServer(
            self._config.rpc_listen,
            identity,
            self._clock,
            add_services=add_services,
            end_streams=self.feed.end,
        )
        await self._records.run(_prepare_socket, self._config.socket)
        server.add_insecure_port(f"unix:{self._config.socket}")
        await server.start()
        await self._records.run(self._config.socket.chmod, SOCKET_MODE)
        log.info("serving", address=f"unix:{self._config.socket}")
        try:
            yield
        finally:
            self.feed.end()
            await _bounded("server", lambda: server.stop(GRACE_SECONDS))

    def _metrics_listener(self, runtime: Runtime) -> MetricsListener:
        firewall = self._firewall if self._config.firewall_bridges else None
        state = HostGauges(
            reservations=self._reservations,
            feed=self.feed,
            sessions=self.sessions,
            warm_pools=self.warm_pools,
            prepared=self.prepared,
            images=self.images,
            flush_failures=lambda: self.conntrack.failures,
            firewall_intact=(lambda: not firewall.warnings) if firewall else None,
            led_elsewhere=(lambda: firewall.elsewhere) if firewall else None,
            report=lambda: self._report(runtime),
        )
        self.metrics.registry.register(state)
        return MetricsListener(
            self._config.metrics_listen,
            self.metrics.registry,
            self._clock,
            is_ready=lambda: self.sessions.reconciled,
        )

    def _learn(self, info: EngineInfo) -> None:
        """Apply the engine's description."""
        self._info = info
        self._reservations.capacity.set_total(self._allocatable())
        self._reservations.disks.watch(info.data_root, info.image_root)
        for warning in info.warnings:
            log.warning("engine warning", error=warning)
        self.feed.host_changed()

    def _allocatable(self) -> Resources:
        """Allocatable resources: settings, else the engine's, else zero."""
        config = self._config
        info = self._info
        cpus = config.cpu
        memory = (config.ram or 0) * MEBI
        if cpus is None:
            cpus = info.cpus if info else 0
        if config.ram is None and info:
            memory = info.memory_bytes - KEPT_FOR_THE_HOST_BYTES
        memory = max(0, memory - config.prepared * PREPARED_BYTES)
        return Resources(nano_cpus=round(cpus * NANO), memory_bytes=memory)

    def _warnings(self) -> tuple[str, ...]:
        info = self._info
        return (
            self._reservations.disks.warnings
            + self._deadlines.warnings
            + (info.warnings if info else ())
            + self.conntrack.warnings
            + self._sources.warnings
            + self._firewall.warnings
            + self._firewall.port_warnings
            + self._tls_ports.warnings
            + self.tls_server.warnings
            + self.warm_pools.warnings
            + self.prepared.warnings
            + self.log_limits.warnings
        )

    def _held_ports(self) -> frozenset[HostPort] | None:
        """The ports of this host's containers; None while it may have others."""
        return self._reservations.ports.all_held if self.sessions.reconciled else None

    def _free_ports(self, protocol: Protocol) -> int:
        """Count the ports that sessions can have, also those of prepared containers."""
        return self._reservations.ports.free(protocol) + self.prepared.held_ports(protocol)

    def _report(self, runtime: Runtime) -> pb.Host:
        config = self._config
        info = self._info
        held = self._reservations
        first, last = config.ports()
        drain = held.drain.now
        return pb.Host(
            format=FORMAT,
            agent_id=runtime.agent_id,
            version=VERSION,
            public_address=config.public_address,
            latency_addresses=config.pinged(),
            capacity=resources_to_proto(held.capacity.total),
            reserved=resources_to_proto(held.capacity.reserved),
            free_sessions=held.capacity.free_sessions,
            port_range_first=first,
            port_range_last=last,
            free_tcp_ports=self._free_ports(Protocol.TCP),
            free_udp_ports=self._free_ports(Protocol.UDP),
            image_count=len(self.images.here),
            engine_available=self.reconciler.engine_available,
            engine_version=info.version if info else "",
            runc_version=info.runc if info else "",
            kernel_version=info.kernel if info else "",
            platform=info.platform if info else "",
            start_slots=config.start_slots,
            draining=drain.draining,
            drain_revision=drain.revision,
            drain_time=wire.timestamp_to_proto(drain.drain_time),
            warnings=[warning[:MAX_SENTENCE] for warning in self._warnings()],
            tls=self._tls_ports.available,
            disk_full=held.disks.short is not None,
            free_image_bytes=held.disks.free_image_bytes,
            prepared=wire.prepared_to_proto(self.prepared.shapes),
            warm_pools=[
                pb.WarmPool(pool_id=pool.pool, revision=pool.revision, size=pool.size)
                for pool in self.warm_pools.pools
            ],
            starting=self.sessions.starting(),
        )


async def _bounded(name: str, close: Callable[[], Awaitable[object]]) -> None:
    """Stop a component within STAGE_SECONDS."""
    try:
        async with asyncio.timeout(STAGE_SECONDS):
            await close()
    except TimeoutError:
        log.warning("component did not stop in time", part=name, seconds=STAGE_SECONDS)


def _prepare_socket(path: Path) -> None:
    """Create the socket's folder, and remove a stale socket unless another agent serves it."""
    with disk(path):
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(str(path))
        raise RuntimeError(f"another agent serves on {path}")
    with disk(path):
        path.unlink(missing_ok=True)
