"""The Docker Engine as an `Engine`.

All calls are on the event loop, without the SDK, which takes several times as much CPU time; only
files of /proc and of the daemon's settings are read on threads.
"""

import asyncio
import contextlib
import json
import signal as signals
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp

from agent.docker.answers import (
    container_of,
    image_root,
    open_listeners,
    pid_of,
    references,
    volume_paths,
    volume_sizes,
    warnings_of,
)
from agent.docker.bodies import body_of, message_of, translated
from agent.docker.calls import CALLS_BESIDE_STARTS, GENERAL_CALLS, EngineCalls, TimedCall, Timeouts
from agent.docker.container_config import (
    INIT,
    config_digest,
    container_config,
    kernel_limits,
    limits_config,
)
from agent.docker.engine_streams import DockerStreams
from agent.docker.errors import (
    Call,
    PartMissingError,
    RemovalInProgressError,
    already_so,
    error_of_answer,
    short,
)
from agent.docker.facts import OWN_NETWORK, EngineFacts, api_of, daemon_facts, engine_facts
from agent.docker.first_process import (
    first_process,
    hand_over,
    load_of,
    members_of_program,
    reported_end,
    reports_of,
    until_begun,
)
from agent.docker.image_program import ImageProgram, image_program
from agent.docker.listing import Listing
from agent.domain.containers.engine import (
    LABEL_AGENT,
    Container,
    ContainerSpec,
    EngineInfo,
    EngineLoad,
    InitState,
    ReportedEnd,
    Start,
)
from agent.domain.errors import AgentError, ContainerGoneError, EngineError
from agent.domain.host.kernel_limits import ContainerLimits
from agent.domain.sessions.session import Port, Process
from agent.domain.sessions.stopping import Member, signal_number
from agent.init.channel import KeptReports, ReportReader
from agent.kernel.limits import changed_limits
from agent.kernel.processes import processes_of, send_signal, wait_end
from agent.metrics.instruments import Metrics
from agent.network.bindings import Bindings
from tiltyard.contract import NetworkMode
from tiltyard.ends import PortBindings
from tiltyard.runtime.clock import Clock, SystemClock
from tiltyard.runtime.tasks import TaskOwner, Threads

T = TypeVar("T")

Work = Callable[[EngineFacts], Coroutine[Any, Any, T]]

_STATUS_THREADS = 2  # For files of /proc, which are read at once
MOST_PROGRAMS = 200  # Images whose program is remembered; each has up to 64 KiB
_NOTICE_TRIES = 200
_NOTICE_SECONDS = 0.01
"""2 s for the engine to notice the end of an init; usually 0.1 s."""


class DockerEngine(DockerStreams):
    """An `Engine` on the unix socket of a Docker daemon, which may start later."""

    def __init__(
        self,
        socket_path: str = "/run/docker.sock",
        *,
        timeouts: Timeouts | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        concurrent_starts: int = 0,
    ) -> None:
        """Start without a connection. `concurrent_starts`: calls that starts may occupy."""
        self.metrics = metrics or Metrics()
        self.clock = clock or SystemClock()
        self._timeouts = timeouts or Timeouts()
        super().__init__(
            socket_path, read_timeout=self._timeouts.stream, pull_timeout=self._timeouts.pull
        )
        self._calls = EngineCalls(max(GENERAL_CALLS, concurrent_starts + CALLS_BESIDE_STARTS))
        self._status = Threads(_STATUS_THREADS, "processes")
        self._bindings = Bindings()
        self._kept = KeptReports()
        self._programs = OrderedDict[str, ImageProgram]()
        self._facts: EngineFacts | None = None
        self._searches = TaskOwner[EngineFacts](AgentError)
        self._listing = Listing(self._status, self._inspect_for_listing)

    async def info(self) -> EngineInfo:
        """Describe the engine; also the liveness check."""
        self._forget()  # its settings may have changed
        call = TimedCall("info", seconds=self._timeouts.read)
        return await self._ask(call, lambda facts: self._read_info(call, facts))

    async def _read_info(self, call: TimedCall, facts: EngineFacts) -> EngineInfo:
        answer = await self._send(call, "GET", "/info")
        own_network = facts.network == OWN_NETWORK
        with translated(call):
            return EngineInfo(
                version=answer["ServerVersion"],
                cpus=int(answer["NCPU"]),
                memory_bytes=int(answer["MemTotal"]),
                warnings=warnings_of(answer, facts.daemon.settings, own_network=own_network),
                data_root=str(answer.get("DockerRootDir", "")),
                image_root=image_root(answer),
                runc=facts.runc,
                kernel=str(answer.get("KernelVersion", "")),
                platform=facts.platform,
            )

    async def open_listeners(self) -> tuple[str, ...]:
        """TCP addresses of the engine that need no client certificate.

        If it does not answer, only its settings are known.
        """
        daemon = await self._status.run(daemon_facts, self._socket_path)
        try:
            call = TimedCall("info", seconds=self._timeouts.read)
            answer = await self._send(call, "GET", "/info", version="")
        except AgentError:
            answer = {}
        return open_listeners(answer, daemon.settings)

    async def program(self, image: str, args: Sequence[str]) -> tuple[str, ...]:
        """Return what a container of this image executes; ImageCannotRunError if it is refused."""
        known = self._programs.get(image)
        if known is None:
            call = TimedCall("inspect-image", image=image, seconds=self._timeouts.read)
            answer = await self._request(call, "GET", f"/images/{quote(image)}/json")
            with translated(call):
                known = image_program(answer["Config"] or {})
            if "@" in image:  # its content never changes
                self._programs[image] = known
            if len(self._programs) > MOST_PROGRAMS:
                self._programs.popitem(last=False)
        return known.with_args(args)

    async def create(self, spec: ContainerSpec) -> str:
        """Create a container and return its id."""
        call = TimedCall(
            "create",
            container=spec.name,
            image=spec.image,
            changes=True,
            seconds=self._timeouts.create,
        )
        return await self._ask(call, lambda facts: self._create_by(call, spec, facts))

    async def _create_by(self, call: TimedCall, spec: ContainerSpec, facts: EngineFacts) -> str:
        config = container_config(spec, facts)
        params = {"name": spec.name}
        with translated(call):
            answer = await self._send(
                call, "POST", "/containers/create", params=params, body=config
            )
            return str(answer["Id"])

    async def config_digest(self, spec: ContainerSpec) -> str:
        """Return a digest of what `create` fixes at present for containers like this."""
        return config_digest(spec, await self._known())

    async def rename(self, container: str, name: str) -> None:
        """Rename a container; no-op if it has the name."""
        call = TimedCall(
            "rename",
            container=container,
            new_name=name,
            changes=True,
            seconds=self._timeouts.kill,  # A rename is as brief
        )
        await self._request(call, "POST", f"{_path(container)}/rename?name={name}")

    async def start(self, container: str, channel: Path) -> Container:
        """Start a container and describe it once its init waits; no-op if it runs."""
        seconds = self._timeouts.start
        call = TimedCall("start", container=container, changes=True, seconds=seconds)
        return await self._ask(call, lambda _: self._start_and_describe(call, channel))

    async def _start_and_describe(self, call: TimedCall, channel: Path) -> Container:
        read = replace(call, name="inspect")  # It changes, too: the container has been started
        with reports_of(channel) as reports:
            try:
                await self._send(call, "POST", f"{_path(call.container)}/start")
            except PartMissingError:
                await self._inspect(read)  # ContainerGoneError if it is missing
                self._forget()  # else its network, which must be created again
                raise
            return await self._begun(await self._inspect(read), reports, read)

    async def hand_over(self, container: Container, channel: Path, start: Start) -> None:
        """Make a waiting init execute a program, once."""
        if container.home:  # or the init takes it for the engine's own
            start = replace(start, env={"HOME": container.home, **start.env})
        with self.metrics.engine_call("hand-over", self.clock), self._kept.kept(channel):
            await hand_over(container.process, channel, start)

    async def inspect(self, container: str) -> Container:
        """Describe one container by id or name."""
        call = TimedCall("inspect", container=container, seconds=self._timeouts.read)
        return await self._ask(call, lambda _: self._inspect(call))

    async def list(self, agent_id: str) -> list[Container]:
        """Describe all containers with the label of this agent, running or not."""
        call = TimedCall("list", seconds=self._timeouts.read)
        params = _filters("label", f"{LABEL_AGENT}={agent_id}") | {"all": "1"}
        with self.metrics.engine_call("list", self.clock):
            entries = await self._run(
                call, lambda _: self._send(call, "GET", "/containers/json", params=params)
            )
            return await self._listing.described(entries)

    async def written_bytes(self, container: str) -> int:
        """Bytes in a container's writable layer and its image's volumes."""
        # Takes no container slot, so that a kill does not wait for the walk.
        call = TimedCall("written-bytes", seconds=self._timeouts.walk)
        return await self._ask(call, lambda _: self._measure(call, container))

    async def _measure(self, call: TimedCall, container: str) -> int:
        params = _filters("id", container) | {"all": "1", "size": "1"}
        entries = await self._send(call, "GET", "/containers/json", params=params)
        if not entries:
            raise ContainerGoneError(container)
        with translated(call):
            volumes = volume_paths(entries[0])
            sizes = [int(entries[0].get("SizeRw", 0))]
        if volumes:
            # Before API 1.42 the engine measures everything else, too.
            usage = await self._send(call, "GET", "/system/df", params={"type": "volume"})
            with translated(call):
                sizes += volume_sizes(usage, volumes)
        if min(sizes) < 0:
            raise EngineError(call.name, "the engine could not measure all of it")
        return sum(sizes)

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal; no-op if the container does not run."""
        seconds = self._timeouts.kill
        call = TimedCall("kill", container=container, changes=True, seconds=seconds)
        await self._request(call, "POST", f"{_path(container)}/kill?signal={signal}")

    async def remove(self, container: str) -> None:
        """Remove a container, running or not; no-op if it is gone."""
        seconds = self._timeouts.remove
        call = TimedCall("remove", container=container, changes=True, seconds=seconds)
        await self._ask(call, lambda _: self._remove_or_wait(call))

    async def _remove_or_wait(self, call: TimedCall) -> None:
        """Remove a container, or wait for the end of another removal."""
        path = _path(call.container)
        try:
            await self._send(call, "DELETE", path, params={"v": "1", "force": "1"})
        except RemovalInProgressError:
            await self._send(call, "POST", f"{path}/wait", params={"condition": "removed"})

    async def end_forgotten(self, container: str) -> None:
        """End what runs in a container that the engine takes for not running."""
        with contextlib.suppress(ContainerGoneError), translated(Call("kill", container)):
            found = await self.inspect(container)
            if not found.is_running:
                async with asyncio.timeout(self._timeouts.kill):
                    for process in await self._status.run(processes_of, found.container):
                        await self.signal_process(process, signals.SIGKILL.name)
                        await self.wait_end(process)

    async def processes(self, first: Process) -> Sequence[Member]:
        """The live processes of a container's program, by the kernel."""
        try:
            return await self._status.run(members_of_program, first)
        except (OSError, ValueError) as error:
            raise EngineError("see the processes of a container", str(error)) from error

    async def signal_process(self, process: Process, signal: str) -> None:
        """Signal the process directly."""
        number = signal_number(signal)
        if number is None:
            raise EngineError("kill", f"there is no signal {signal}")
        try:
            send_signal(process, number)
        except PermissionError as error:
            raise EngineError("kill", "the agent lacks CAP_KILL") from error

    async def wait_end(self, process: Process, channel: Path | None = None) -> ReportedEnd | None:
        """Wait until the process is gone; return what it reported of its program's end."""
        end = wait_end(process)
        return await (end if channel is None else reported_end(channel, end, self._kept))

    async def has_bound(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> bool:
        """Return whether players can reach every port; `process` is the container's first."""
        try:
            return await self._bindings.all_bound(process, network_mode, ports)
        except OSError as error:
            raise EngineError("see which ports are bound", str(error)) from error

    async def bindings(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> PortBindings:
        """Compare ports with those that a container's processes have bound."""
        try:
            return await self._bindings.compared(process, network_mode, ports)
        except OSError as error:
            raise EngineError("see which ports are bound", str(error)) from error

    async def images(self) -> Mapping[str, int]:
        """Unpacked bytes of all images on the host, by digest reference."""
        call = TimedCall("images", seconds=self._timeouts.read)
        answer = await self._request(call, "GET", "/images/json")
        with translated(call):
            return references(answer)

    async def remove_image(self, image: str) -> None:
        """Remove a digest reference, and the image with its last one; no-op if it is gone."""
        seconds = self._timeouts.remove
        call = TimedCall("remove-image", image=image, changes=True, seconds=seconds)
        await self._request(call, "DELETE", f"/images/{quote(image)}")

    async def close(self) -> None:
        """Release threads and connections; calls in progress run to their deadlines."""
        await self._calls.close()
        await super().close()
        await self._bindings.close()
        self._kept.close()
        await self._status.close()

    async def read_load(self, processes: Sequence[Process]) -> EngineLoad:
        """Read the processor time of dockerd, and of the shims, the parents of containers."""
        facts = await self._known()
        return await self._status.run(load_of, facts.daemon.pid, processes)

    async def changed_limits(
        self, wanted: Mapping[Process, ContainerLimits]
    ) -> Mapping[Process, tuple[str, ...]]:
        """Compare the limits of containers with those of their control groups."""
        facts = await self._known()
        limits = {each: kernel_limits(own, facts.cpus) for each, own in wanted.items()}
        return await self._status.run(changed_limits, limits)

    async def set_limits(self, container: str, wanted: ContainerLimits) -> None:
        """Set the limits of a running container again."""
        call = TimedCall("update", container=container, changes=True, seconds=self._timeouts.read)
        body = limits_config(wanted, (await self._known()).cpus)
        await self._request(call, "POST", f"{_path(container)}/update", body)

    async def _request(self, call: TimedCall, method: str, path: str, body: object = None) -> Any:
        """Run and measure a call that is one request; return the JSON of its answer."""
        return await self._ask(call, lambda _: self._send(call, method, path, body=body))

    async def _ask(self, call: TimedCall, work: Work[T]) -> T:
        """Run and measure a call, including its queueing."""
        with self.metrics.engine_call(call.name, self.clock):
            return await self._run(call, work)

    async def _run(self, call: TimedCall, work: Work[T]) -> T:
        facts = await self._known()
        return await self._calls.run(call, lambda: work(facts))

    async def _known(self) -> EngineFacts:
        if self._facts is not None:
            return self._facts
        search = self._searches.get("facts") or self._searches.start(
            self._find_out(), "engine-facts", key="facts"
        )
        return await asyncio.shield(search)  # concurrent callers share one search

    async def _send(
        self,
        call: TimedCall,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        version: str | None = None,
    ) -> Any:
        """Send a request and return the JSON of its answer; None if it is done already.

        `version`: begins the path; that of the facts by default, "" for the engine's newest.
        """
        if version is None:
            version = f"/v{(await self._known()).api}"
        timeout = aiohttp.ClientTimeout(sock_connect=call.seconds, sock_read=call.seconds)
        url = f"http://docker{version}{path}"
        with translated(call, self._forget):
            async with self._connections().request(
                method, url, params=params, json=body, timeout=timeout
            ) as response:
                if response.status >= 400:
                    message = await message_of(response)
                    if already_so(call, response.status):
                        return None
                    raise error_of_answer(call, response.status, message)
                answer = await body_of(response)
                return json.loads(answer) if answer else None

    async def _inspect(self, call: TimedCall) -> Container:
        answer = await self._send(call, "GET", f"{_path(call.container)}/json")
        with translated(call):
            pid = pid_of(answer)
            if pid is None:
                return container_of(answer, None)
            process, init = first_process(pid)
            return container_of(answer, process, init)

    async def _begun(
        self, container: Container, reports: ReportReader, call: TimedCall
    ) -> Container:
        """Return a container that has been started once its init does more than begin."""
        if container.process is None:
            state = None
        elif container.init is InitState.BEGINNING:
            state = await until_begun(container.process, reports)
        else:
            state = container.init
        if state is not None:
            return replace(container, init=state)
        raise EngineError("start", await self._why_ended(call))

    async def _why_ended(self, call: TimedCall) -> str:
        """Say why an init ended before it waited, once the engine has noticed."""
        read = replace(call, seconds=self._timeouts.read)
        found = await self._inspect(read)
        for _ in range(_NOTICE_TRIES):
            if not found.is_running:
                break
            await asyncio.sleep(_NOTICE_SECONDS)
            found = await self._inspect(read)
        async with self.logs(found.container, tail=1) as answer:
            last = b"".join([piece.data async for pieces in answer for piece in pieces])
        cause = f": {last.decode(errors='replace').strip()}" if INIT.encode() in last else ""
        return short(f"its init ended with {found.exit_code}{cause}")

    async def _find_out(self) -> EngineFacts:
        call = TimedCall("info", seconds=self._timeouts.read)
        facts = await self._calls.run(call, lambda: self._read_facts(call), queued=False)
        self._facts = facts
        return facts

    async def _read_facts(self, call: TimedCall) -> EngineFacts:
        daemon = await self._status.run(daemon_facts, self._socket_path)
        version = await self._send(call, "GET", "/version", version="")
        with translated(call):
            api = api_of(version)
            ask = partial(self._send, call, version=f"/v{api}")
            return await engine_facts(ask, api, version, daemon)

    async def _inspect_for_listing(self, container: str) -> Container:
        call = TimedCall("list", container=container, seconds=self._timeouts.read)
        return await self._run(call, lambda _: self._inspect(call))

    def _forget(self) -> None:
        self._facts = None


def _path(container: str) -> str:
    return f"/containers/{quote(container, safe='')}"


def _filters(name: str, value: str) -> dict[str, str]:
    return {"filters": json.dumps({name: [value]})}
