"""The Docker Engine as an `Engine`: SDK calls on threads, streams on the event loop."""

import asyncio
import signal as signals
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from agent.docker import sdk as docker_sdk
from agent.docker.answers import references, warnings_of
from agent.docker.calls import EngineCalls, Timeouts
from agent.docker.container_config import container_config
from agent.docker.engine_streams import DockerStreams
from agent.docker.errors import Call
from agent.docker.listing import Listing
from agent.domain.engine import LABEL_AGENT, Container, ContainerSpec, EngineInfo, container_name
from agent.domain.errors import AgentError, EngineError
from agent.domain.session import Port, Process
from agent.kernel.processes import live_process, send_signal, wait_end
from agent.metrics.instruments import Metrics
from agent.network.bindings import Bindings
from tiltyard.contract import NetworkMode
from tiltyard.runtime.clock import Clock, SystemClock
from tiltyard.runtime.tasks import TaskOwner

T = TypeVar("T")

Ask = Callable[[docker_sdk.Client, docker_sdk.EngineFacts], T]


class DockerEngine(DockerStreams):
    """An `Engine` on the unix socket of a Docker daemon, which may start later."""

    def __init__(
        self,
        socket_path: str = "/run/docker.sock",
        *,
        timeouts: Timeouts | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.clock = clock or SystemClock()
        self._timeouts = timeouts or Timeouts()
        super().__init__(
            socket_path, read_timeout=self._timeouts.stream, pull_timeout=self._timeouts.pull
        )
        self._calls = EngineCalls()
        self._bindings = Bindings()
        self._clients = docker_sdk.Clients(socket_path)
        self._fit_images: set[str] = set()
        self._facts: docker_sdk.EngineFacts | None = None
        self._searches = TaskOwner[docker_sdk.EngineFacts](AgentError)
        self._listing = Listing(self._calls, self._inspect_for_listing, self._timeouts.read)

    async def info(self) -> EngineInfo:
        """Describe the engine; also the liveness check."""
        self._forget()  # its settings may have changed
        answer, facts = await self._ask(
            Call("info"), self._timeouts.read, lambda api, facts: (api.info(), facts)
        )
        return EngineInfo(
            version=answer["ServerVersion"],
            cpus=int(answer["NCPU"]),
            memory_bytes=int(answer["MemTotal"]),
            warnings=warnings_of(
                answer, facts.settings, own_network=facts.network == docker_sdk.OWN_NETWORK
            ),
            data_root=str(answer.get("DockerRootDir", "")),
            runc=facts.runc,
            kernel=str(answer.get("KernelVersion", "")),
        )

    async def create(self, spec: ContainerSpec) -> str:
        """Create a container and return its id."""
        name = container_name(spec.internal_id)

        def create(api: docker_sdk.Client, facts: docker_sdk.EngineFacts) -> str:
            config = container_config(
                spec,
                cpus=facts.cpus,
                nofile=facts.nofile,
                network=facts.network,
                has_layer_quota=facts.has_layer_quota,
            )
            return docker_sdk.create(api, config, name, self._fit_images)

        call = Call("create", container=name, image=spec.image, changes=True)
        return await self._ask(call, self._timeouts.create, create)

    async def start(self, container: str) -> Container:
        """Start a container unless it runs, and describe it."""
        return await self._ask(
            Call("start", container=container, changes=True),
            self._timeouts.start,
            lambda api, _: docker_sdk.start(api, container),
        )

    async def inspect(self, container: str) -> Container:
        """Describe one container by id or name."""
        return await self._ask(
            Call("inspect", container=container),
            self._timeouts.read,
            lambda api, _: docker_sdk.inspect(api, container),
        )

    async def list(self, agent_id: str) -> list[Container]:
        """Describe all containers with the label of this agent, running or not."""
        filters = {"label": f"{LABEL_AGENT}={agent_id}"}
        with self.metrics.engine_call("list", self.clock):
            entries = await self._run(
                Call("list"),
                self._timeouts.read,
                lambda api, _: api.containers(all=True, filters=filters),
            )
            return await self._listing.described(entries)

    async def written_bytes(self, container: str) -> int:
        """Bytes in a container's writable layer and its image's volumes."""
        # Takes no container slot, so that a kill does not wait for the walk.
        return await self._ask(
            Call("written-bytes"),
            self._timeouts.walk,
            lambda api, _: docker_sdk.written_bytes(api, container),
        )

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal; no-op if the container does not run."""
        call = Call("kill", container=container, changes=True)
        await self._ask(
            call,
            self._timeouts.kill,
            lambda api, _: docker_sdk.unless_so(call, api.kill, container, signal),
        )

    async def remove(self, container: str) -> None:
        """Remove a container, running or not; no-op if it is gone."""
        call = Call("remove", container=container, changes=True)
        seconds = self._timeouts.remove
        await self._ask(call, seconds, lambda api, _: docker_sdk.remove(api, call, seconds))

    async def signal_process(self, process: Process, signal: str) -> None:
        """Signal the process directly, for an engine that does not answer `kill`."""
        try:
            await send_signal(process, signals.Signals[signal], self._read_process)
        except PermissionError as error:
            raise EngineError("kill", "the agent lacks CAP_KILL") from error

    async def wait_end(self, process: Process) -> None:
        """Wait until the process is gone, without asking the engine."""
        await wait_end(process, self._read_process)

    async def has_bound(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> bool:
        """Return whether players can reach every port; `process` is the container's first."""
        try:
            return await self._bindings.all_bound(process, network_mode, ports)
        except OSError as error:
            raise EngineError("see which ports are bound", str(error)) from error

    async def images(self) -> frozenset[str]:
        """Digest references of all images on the host."""
        return frozenset(await self.image_sizes())

    async def image_sizes(self) -> Mapping[str, int]:
        """Unpacked bytes of all images on the host, by digest reference."""
        return references(
            await self._ask(Call("images"), self._timeouts.read, lambda api, _: api.images())
        )

    async def remove_image(self, image: str) -> None:
        """Remove a digest reference, and the image with its last one; no-op if it is gone."""
        call = Call("remove-image", image=image, changes=True)
        await self._ask(
            call,
            self._timeouts.remove,
            lambda api, _: docker_sdk.unless_so(call, api.remove_image, image),
        )

    async def close(self) -> None:
        """Release threads and connections; calls in progress run to their deadlines."""
        await super().close()
        await self._bindings.close()
        await self._calls.close()
        self._clients.close()

    async def _read_process(self, pid: int) -> Process | None:
        return await self._calls.run(
            Call("inspect"), self._timeouts.read, partial(live_process, pid)
        )

    async def _ask(self, call: Call, seconds: float, ask: Ask[T]) -> T:
        """Run and measure a call, including its queueing."""
        with self.metrics.engine_call(call.name, self.clock):
            return await self._run(call, seconds, ask)

    async def _run(self, call: Call, seconds: float, ask: Ask[T]) -> T:
        facts = self._facts
        if facts is None:  # concurrent callers share one search
            search = self._searches.get("facts") or self._searches.start(
                self._find_out(), "engine-facts", key="facts"
            )
            facts = await asyncio.shield(search)
        try:
            return await self._translated(
                call, seconds, lambda: ask(self._clients.mine(facts.api, seconds), facts)
            )
        except EngineError as error:
            if docker_sdk.OWN_NETWORK in error.cause:
                self._forget()  # the network was removed: recreate it
            raise

    async def _translated(self, call: Call, seconds: float, work: Callable[[], T]) -> T:
        def convert() -> T:
            with docker_sdk.translated(call, self._forget):
                return work()

        return await self._calls.run(call, seconds, convert)

    async def _find_out(self) -> docker_sdk.EngineFacts:
        seconds = self._timeouts.read
        self._facts = facts = await self._translated(
            Call("info"), seconds, lambda: docker_sdk.find_out(self._clients, seconds)
        )
        return facts

    async def _inspect_for_listing(self, container: str) -> Container:
        return await self._run(
            Call("list", container=container),
            self._timeouts.read,
            lambda api, _: docker_sdk.inspect(api, container),
        )

    def _forget(self) -> None:
        self._facts = None
