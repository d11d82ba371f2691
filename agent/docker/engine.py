"""The Docker Engine as an `Engine`.

Streams and what each session needs are on the event loop, without the SDK, which takes several
times as much CPU time; rare calls go through the SDK, on threads.
"""

import asyncio
import json
import signal as signals
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp

from agent.docker import sdk as docker_sdk
from agent.docker.answers import container_of, pid_of, references, warnings_of
from agent.docker.calls import EngineCalls, Timeouts
from agent.docker.container_config import container_config
from agent.docker.engine_streams import DockerStreams, message_of, translated
from agent.docker.errors import Call, RemovalInProgressError, already_so, error_of_answer
from agent.docker.listing import Listing
from agent.docker.program import began, why_not_run
from agent.domain.engine import (
    LABEL_AGENT,
    Container,
    ContainerSpec,
    EngineInfo,
    OnStarted,
    container_name,
)
from agent.domain.errors import AgentError, EngineError, ImageCannotRunError
from agent.domain.session import Port, Process
from agent.kernel.processes import live_process, send_signal, wait_end
from agent.metrics.instruments import Metrics
from agent.network.bindings import Bindings
from tiltyard.contract import NetworkMode
from tiltyard.runtime.clock import Clock, SystemClock
from tiltyard.runtime.tasks import TaskOwner, Threads

T = TypeVar("T")

Ask = Callable[[docker_sdk.Client, docker_sdk.EngineFacts], T]
Work = Callable[[docker_sdk.EngineFacts], Coroutine[Any, Any, T]]

_STATUS_THREADS = 2  # For files of /proc, which are read at once


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
        self._status = Threads(_STATUS_THREADS, "processes")
        self._bindings = Bindings()
        self._clients = docker_sdk.Clients(socket_path)
        self._fit_images: set[str] = set()
        self._facts: docker_sdk.EngineFacts | None = None
        self._searches = TaskOwner[docker_sdk.EngineFacts](AgentError)
        self._listing = Listing(self._calls, self._inspect_for_listing, self._timeouts.read)

    async def info(self) -> EngineInfo:
        """Describe the engine; also the liveness check."""
        self._forget()  # its settings may have changed
        answer, facts = await self._ask_sdk(
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
        """Create a container and return its id; ImageCannotRunError if its image is refused."""
        name, image, seconds = container_name(spec.internal_id), spec.image, self._timeouts.create
        call = Call("create", container=name, image=image, changes=True)

        async def create(facts: docker_sdk.EngineFacts) -> str:
            if image not in self._fit_images:
                await self._on_thread(
                    call, seconds, lambda api, _: docker_sdk.check_image(api, image)
                )
                if "@" in image:  # its content never changes
                    self._fit_images.add(image)
            config = container_config(
                spec,
                cpus=facts.cpus,
                nofile=facts.nofile,
                network=facts.network,
                has_layer_quota=facts.has_layer_quota,
            )
            params = {"name": name}
            path = "/containers/create"
            with translated(call):
                answer = await self._send(call, "POST", path, seconds, params=params, body=config)
                return str(answer["Id"])

        return await self._ask(call, seconds, create)

    async def start(self, container: str, on_started: OnStarted | None = None) -> Container:
        """Start and describe a container; ImageCannotRunError if its program cannot run."""
        call, seconds = Call("start", container=container, changes=True), self._timeouts.start

        async def inspect() -> Container:
            return await self._inspect(call, seconds)

        async def log_end() -> bytes:
            async with self.logs(container, tail=5) as found:
                return b"".join([piece.data async for pieces in found for piece in pieces])

        async def start(_: docker_sdk.EngineFacts) -> Container:
            await self._send(call, "POST", f"{_path(container)}/start", seconds)
            if on_started is not None:
                await on_started()
            answer = await self._send(call, "GET", f"{_path(container)}/json", seconds)
            with translated(call):
                pid = pid_of(answer)
            if pid is None or not await self._status.run(began, pid):
                cause = await why_not_run(inspect, log_end)
                if cause is not None:
                    raise ImageCannotRunError(cause)
            process = None if pid is None else await self._status.run(live_process, pid)
            return await inspect() if process is None else container_of(answer, process)

        return await self._ask(call, seconds, start)

    async def inspect(self, container: str) -> Container:
        """Describe one container by id or name."""
        call, seconds = Call("inspect", container=container), self._timeouts.read
        return await self._ask(call, seconds, lambda _: self._inspect(call, seconds))

    async def list(self, agent_id: str) -> list[Container]:
        """Describe all containers with the label of this agent, running or not."""
        filters = {"label": f"{LABEL_AGENT}={agent_id}"}
        with self.metrics.engine_call("list", self.clock):
            call, seconds = Call("list"), self._timeouts.read
            entries = await self._run(
                call,
                seconds,
                lambda _: self._on_thread(
                    call, seconds, lambda api, _: api.containers(all=True, filters=filters)
                ),
            )
            return await self._listing.described(entries)

    async def written_bytes(self, container: str) -> int:
        """Bytes in a container's writable layer and its image's volumes."""
        # Takes no container slot, so that a kill does not wait for the walk.
        return await self._ask_sdk(
            Call("written-bytes"),
            self._timeouts.walk,
            lambda api, _: docker_sdk.written_bytes(api, container),
        )

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal; no-op if the container does not run."""
        call, seconds = Call("kill", container=container, changes=True), self._timeouts.kill
        path, params = f"{_path(container)}/kill", {"signal": signal}
        await self._ask(
            call, seconds, lambda _: self._send(call, "POST", path, seconds, params=params)
        )

    async def remove(self, container: str) -> None:
        """Remove a container, running or not; no-op if it is gone."""
        call, seconds = Call("remove", container=container, changes=True), self._timeouts.remove
        path = _path(container)

        async def remove(_: docker_sdk.EngineFacts) -> None:
            try:
                params = {"v": "1", "force": "1"}
                await self._send(call, "DELETE", path, seconds, params=params)
            except RemovalInProgressError:
                params = {"condition": "removed"}
                await self._send(call, "POST", f"{path}/wait", seconds, params=params)

        await self._ask(call, seconds, remove)

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
            await self._ask_sdk(Call("images"), self._timeouts.read, lambda api, _: api.images())
        )

    async def remove_image(self, image: str) -> None:
        """Remove a digest reference, and the image with its last one; no-op if it is gone."""
        call = Call("remove-image", image=image, changes=True)
        await self._ask_sdk(
            call,
            self._timeouts.remove,
            lambda api, _: docker_sdk.unless_so(call, api.remove_image, image),
        )

    async def close(self) -> None:
        """Release threads and connections; calls in progress run to their deadlines."""
        await self._calls.close()
        await super().close()
        await self._bindings.close()
        await self._status.close()
        self._clients.close()

    async def _read_process(self, pid: int) -> Process | None:
        return await self._status.run(live_process, pid)

    async def _ask_sdk(self, call: Call, seconds: float, ask: Ask[T]) -> T:
        """Run and measure a blocking call, including its queueing."""
        return await self._ask(call, seconds, lambda _: self._on_thread(call, seconds, ask))

    async def _ask(self, call: Call, seconds: float, work: Work[T]) -> T:
        """Run and measure a call, including its queueing."""
        with self.metrics.engine_call(call.name, self.clock):
            return await self._run(call, seconds, work)

    async def _run(self, call: Call, seconds: float, work: Work[T]) -> T:
        facts = await self._known()
        try:
            return await self._calls.run(call, seconds, lambda: work(facts))
        except EngineError as error:
            if docker_sdk.OWN_NETWORK in error.cause:
                self._forget()  # the network was removed: recreate it
            raise

    async def _known(self) -> docker_sdk.EngineFacts:
        if self._facts is not None:
            return self._facts
        search = self._searches.get("facts") or self._searches.start(
            self._find_out(), "engine-facts", key="facts"
        )
        return await asyncio.shield(search)  # concurrent callers share one search

    async def _send(
        self,
        call: Call,
        method: str,
        path: str,
        seconds: float,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Any:
        """Send a request and return the JSON of its answer; None if it is done already."""
        facts = await self._known()
        timeout = aiohttp.ClientTimeout(sock_connect=seconds, sock_read=seconds)
        url = f"http://docker/v{facts.api}{path}"
        with translated(call, self._forget):
            async with self._connections().request(
                method, url, params=params, json=body, timeout=timeout
            ) as response:
                if response.status >= 400:
                    message = await message_of(response)
                    if already_so(call, response.status, message):
                        return None
                    raise error_of_answer(call, response.status, message)
                answer = await response.read()
                return json.loads(answer) if answer else None

    async def _inspect(self, call: Call, seconds: float) -> Container:
        answer = await self._send(call, "GET", f"{_path(call.container)}/json", seconds)
        with translated(call):
            pid = pid_of(answer)
            return container_of(answer, None if pid is None else await self._read_process(pid))

    async def _on_thread(self, call: Call, seconds: float, ask: Ask[T]) -> T:
        facts = await self._known()
        return await self._block(call, lambda: ask(self._clients.mine(facts.api, seconds), facts))

    async def _block(self, call: Call, work: Callable[[], T]) -> T:
        def convert() -> T:
            with docker_sdk.translated(call, self._forget):
                return work()

        return await self._calls.threads.run(convert)

    async def _find_out(self) -> docker_sdk.EngineFacts:
        call, seconds = Call("info"), self._timeouts.read
        self._facts = facts = await self._calls.run(
            call,
            seconds,
            lambda: self._block(call, lambda: docker_sdk.find_out(self._clients, seconds)),
        )
        return facts

    async def _inspect_for_listing(self, container: str) -> Container:
        call, seconds = Call("list", container=container), self._timeouts.read
        return await self._run(call, seconds, lambda _: self._inspect(call, seconds))

    def _forget(self) -> None:
        self._facts = None


def _path(container: str) -> str:
    return f"/containers/{quote(container, safe='')}"
