"""The agent's parts put together, started in order and stopped in stages."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib import metadata
from pathlib import Path

import grpc

from agent.artifacts.fetching import Artifacts
from agent.artifacts.spool_room import RoomLimits
from agent.clock import Clock
from agent.config import LARGEST_SPOOL_BYTES, AgentConfig, Supervision
from agent.engine import Engine, EngineInfo
from agent.failpoints import failpoint
from agent.feed import Feed
from agent.host import Host, HostReport, HostSettings
from agent.identity import HostIdentity
from agent.images import Images
from agent.network.conntrack import Conntrack
from agent.network.firewall import Firewall
from agent.network.firewall_watch import FirewallWatch, published_ports
from agent.network.port_probe import PortProbe
from agent.network.ports import PortPool
from agent.notify import Notifier
from agent.policy import load_policy
from agent.rpc import AgentService, Services
from agent.sessions.adoption import Reconciler, Timekeeper
from agent.sessions.capacity import Capacity
from agent.sessions.deadlines import Deadlines
from agent.sessions.disks import Disks
from agent.sessions.drain import HostDrain
from agent.sessions.manager import SessionManager
from agent.sessions.record import Records
from agent.sessions.retention import Rules
from agent.sessions.session import MEBIBYTE, Protocol, Resources
from agent.sessions.usage import UsageMeter
from agent.transport import Transport
from tiltyard.agent.v1 import agent_pb2_grpc

log = logging.getLogger(__name__)

VERSION = metadata.version("tiltyard")
KEPT_FOR_THE_HOST_BYTES = 512 * MEBIBYTE
"""Memory that is not lent when `ram` is not set: the engine, the agent and the kernel live too."""
LARGEST_MESSAGE_BYTES = 4 * MEBIBYTE
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    # A control plane that is gone without a word is found within 8 s, and its streams end.
    ("grpc.keepalive_time_ms", 4_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
    # It asks as often, also when nothing was said in between.
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
)
SERVER_GRACE_SECONDS = 2.0
"""How long calls under way may take when the agent stops."""
STAGE_SECONDS = 5.0
"""How long each part may take to let go then: nine of them are 45 s, systemd allows 90 s."""
SOCKET_MODE = 0o660
"""Owner and group may order containers, which is as good as root: nobody else."""


class Daemon:
    """One agent. `run` serves until it is cancelled; containers run on after that."""

    def __init__(
        self,
        config: AgentConfig,
        engine: Engine,
        clock: Clock,
        is_free: Callable[[Protocol, int], bool] | None = None,
        supervision: Supervision | None = None,
    ) -> None:
        """Make the parts; `is_free` tells whether nobody else on the host has a port."""
        self._is_free = is_free or PortProbe(config.bind_address).is_free
        self._config = config
        self._engine = engine
        self._clock = clock
        self._records = Records(config.state_dir)
        self._feed = Feed()
        self._policy = load_policy(config.policy)
        self._images = Images(engine, self._feed, self._policy)
        self._conntrack = Conntrack()
        self._usage = UsageMeter(clock)
        self._notifier = Notifier(supervision or Supervision(), clock)
        self._info: EngineInfo | None = None
        self.serving = asyncio.Event()
        """Set once the socket answers; the records need not have been compared by then."""

    async def run(self) -> None:
        """Serve. If one of the critical loops dies, so does the agent, and is started again."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(_bounded, "records", self._records.close)
            stack.push_async_callback(_bounded, "engine", self._engine.close)
            stack.push_async_callback(_bounded, "conntrack", self._conntrack.close)
            stack.push_async_callback(_bounded, "usage", self._usage.close)
            host = await self._make_host()
            sessions = SessionManager(host)
            await sessions.load()
            stack.push_async_callback(_bounded, "sessions", sessions.close)
            stack.push_async_callback(_bounded, "images", self._images.close)
            self._reconciler = Reconciler(
                host,
                sessions,
                self._images,
                learn=lambda info: self._learn(host, info),
                rules=Rules(
                    container_seconds=self._config.container_retention_hours * 3600,
                    log_seconds=self._config.log_retention_days * 86400,
                ),
            )
            stack.push_async_callback(_bounded, "reconciler", self._reconciler.close)
            self._firewall = FirewallWatch(
                Firewall(self._config.firewall()),
                self._clock,
                version=ipaddress.ip_address(self._config.bind_address).version,
                published=lambda: published_ports(sessions.all()),
                tell=self._feed.tell_host,
            )
            stack.push_async_callback(_bounded, "firewall", self._firewall.close)
            await stack.enter_async_context(self._served(host, sessions))
            self.serving.set()
            self._notifier.ready()
            stack.callback(self._notifier.stopping)
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._reconciler.run(), name="reconciler")
                loops.create_task(self._reconciler.listen(), name="listener")
                loops.create_task(self._usage.run(), name="usage")
                loops.create_task(self._notifier.beat(), name="watchdog")
                loops.create_task(Timekeeper(host, sessions).run(), name="timekeeper")
                if self._config.rpc_listen:
                    loops.create_task(self._transport.run(), name="transport")
                if self._config.firewall_bridges:
                    loops.create_task(self._firewall.run(), name="firewall")

    async def _make_host(self) -> Host:
        config = self._config
        total = Resources(
            nano_cpus=round((config.cpu or 0) * 10**9),
            memory_bytes=(config.ram or 0) * MEBIBYTE,
        )
        deadlines = Deadlines()
        return Host(
            settings=HostSettings(
                agent_id=await self._records.open(),
                public_address=config.public_address,
                bind_address=config.bind_address,
                env_prefixes=config.env_prefixes,
                stop_grace=config.stop_grace,
                start_slots=config.start_slots,
            ),
            engine=self._engine,
            records=self._records,
            capacity=Capacity(total, config.max_sessions, config.gpus),
            ports=PortPool(*config.ports(), self._is_free),
            deadlines=deadlines,
            drain=HostDrain(self._records, deadlines, self._feed, self._clock),
            disks=Disks(config.disk_reserve * MEBIBYTE, config.state_dir),
            feed=self._feed,
            clock=self._clock,
            start_slots=asyncio.Semaphore(config.start_slots),
            policy=self._policy,
            usage=self._usage,
            forget_flows=self._conntrack.forget,
            reach=failpoint(config.failpoint),
        )

    @contextlib.asynccontextmanager
    async def _served(self, host: Host, sessions: SessionManager) -> AsyncIterator[None]:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        identity = HostIdentity(self._config.state_dir, self._records.run, self._clock.time)
        services = Services(
            sessions=sessions,
            images=self._images,
            artifacts=Artifacts(
                self._engine,
                self._records,
                RoomLimits(self._config.artifact_spool_bytes, LARGEST_SPOOL_BYTES),
            ),
            engine=self._engine,
            records=self._records,
            clock=self._clock,
            feed=self._feed,
            describe_host=lambda: self._report(host),
            identity=identity,
        )
        add_services = partial(
            agent_pb2_grpc.add_AgentServiceServicer_to_server, AgentService(services)
        )
        add_services(server)
        self._transport = Transport(
            self._config.rpc_listen,
            identity,
            self._clock,
            add_services=add_services,
            options=SERVER_OPTIONS,
            end_streams=self._feed.end,
        )
        await self._records.run(_make_way, self._config.socket)
        server.add_insecure_port(f"unix:{self._config.socket}")
        await server.start()
        await self._records.run(self._config.socket.chmod, SOCKET_MODE)
        log.info("serving on unix:%s", self._config.socket)
        try:
            yield
        finally:
            self._feed.end()
            await _bounded("server", lambda: server.stop(SERVER_GRACE_SECONDS))

    def _learn(self, host: Host, info: EngineInfo) -> None:
        """Take in what the engine is, and lend what the settings leave open."""
        self._info = info
        host.capacity.lend(self._lent(info))
        host.disks.watch(info.data_root)
        for warning in info.warnings:
            log.warning("%s", warning)
        self._feed.tell_host()

    def _lent(self, info: EngineInfo) -> Resources:
        config = self._config
        cpus = info.cpus if config.cpu is None else config.cpu
        memory = (
            max(0, info.memory_bytes - KEPT_FOR_THE_HOST_BYTES)
            if config.ram is None
            else config.ram * MEBIBYTE
        )
        return Resources(nano_cpus=round(cpus * 10**9), memory_bytes=memory)

    def _report(self, host: Host) -> HostReport:
        config, info = self._config, self._info
        return HostReport(
            agent_id=host.settings.agent_id,
            version=VERSION,
            public_address=config.public_address,
            latency_addresses=config.pinged(),
            capacity=host.capacity.total,
            reserved=host.capacity.reserved,
            free_sessions=host.capacity.free_sessions,
            port_range=config.ports(),
            free_tcp_ports=host.ports.free(Protocol.TCP),
            free_udp_ports=host.ports.free(Protocol.UDP),
            images=tuple(sorted(self._images.here)),
            engine_available=self._reconciler.engine_available,
            engine_version=info.version if info else "",
            start_slots=config.start_slots,
            drain=host.drain.now,
            warnings=host.disks.warnings
            + (info.warnings if info else ())
            + self._conntrack.warnings
            + self._firewall.warnings,
        )


async def _bounded(name: str, close: Callable[[], Awaitable[object]]) -> None:
    """Have a part let go, at most STAGE_SECONDS long; what it holds goes with the process."""
    try:
        async with asyncio.timeout(STAGE_SECONDS):
            await close()
    except TimeoutError:
        log.warning("stopping: the %s did not let go within %g s", name, STAGE_SECONDS)


def _make_way(path: Path) -> None:
    """Make the socket's folder, and remove a socket that a killed agent left.

    RuntimeError when somebody serves there.
    """
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(str(path))
        raise RuntimeError(f"another agent serves on {path}")
    path.unlink(missing_ok=True)
