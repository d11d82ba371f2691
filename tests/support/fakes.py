"""An engine in memory, on a fake clock unless it is given another.

`FakeEngine` keeps the contract of `agent.domain.engine.Engine` as Docker does
(contract/test_engine.py).
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path

from agent.domain import errors
from agent.domain.engine import (
    Container,
    ContainerSpec,
    ContainerStatus,
    Credentials,
    EngineInfo,
    EngineLoad,
    InitState,
    LogPiece,
    ReportedEnd,
    Start,
)
from agent.domain.session import Port, Process
from tests.support.fake_clock import FakeClock
from tests.support.fake_container import (
    FakeContainer,
    chunks_of,
    config_digest,
    packed,
    wait_status,
)
from tests.support.fake_processes import FakeProcesses
from tiltyard.contract import NetworkMode, PullProgress
from tiltyard.runtime.clock import Clock

__all__ = ["FakeClock", "FakeEngine"]

IMAGE_BYTES = 10 * 2**20  # The size of each image in bytes
GAME = "/game"  # The program of an image


class FakeEngine(FakeProcesses):
    """A container engine whose containers are entries in a table.

    Tests fill the sets `cannot_start` (images whose containers the engine cannot start),
    `cannot_run` (images whose program cannot be executed), `ignores_sigterm` and
    `survives_sigkill` (names of containers) and `registry` (images that can be pulled), and the
    tables `programs` (entry point and command of an image, else GAME) and `cannot_execute` (why
    and with which exit code a program cannot be executed). Methods take container names or ids. If
    `binds_at_once` is False, a program binds its ports only at `bind`, else when it is executed.
    Channels are not used. A container without an init, as older agents made them, runs its game
    when it is started.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self.binds_at_once = True
        self.config_version = 0
        """A change gives the containers that are created from then on another configuration."""
        self.cannot_start: set[str] = set()
        self.cannot_run: set[str] = set()
        self.cannot_execute: dict[str, tuple[str, int]] = {}
        self.programs: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self.executed = Counter[str]()
        """The number of programs executed in each container, by its id."""
        self.survives_sigkill: set[str] = set()
        self.registry: set[str] = set()
        self._clock: Clock = clock or FakeClock()
        self.cpu_seconds: float | None = 0.0
        """Processor seconds that the engine has used."""
        self._images: set[str] = set()
        self._containers: dict[str, FakeContainer] = {}
        self._ids: dict[str, str] = {}
        self._occupied: set[tuple[str, int]] = set()
        self._published: dict[tuple[str, int], str] = {}
        self._ends: dict[Process, asyncio.Future[ReportedEnd | None]] = {}
        self._watchers: dict[asyncio.Queue[str | None], str] = {}

    # Observed by tests.

    @property
    def living(self) -> set[Process]:
        """The running processes."""
        return set(self._ends)

    @property
    def published(self) -> dict[tuple[str, int], str]:
        """The container of each published host port, by protocol and number."""
        return dict(self._published)

    @property
    def all(self) -> list[FakeContainer]:
        """The containers of all agents."""
        return list(self._containers.values())

    def containers(self, agent_id: str) -> list[Container]:
        """The containers of an agent, as the engine describes them."""
        return [held.described() for held in self.all if held.spec.agent_id == agent_id]

    # Controlled by tests.

    def heal(self) -> None:
        """Remove all scripted failures."""
        super().heal()
        self.survives_sigkill.clear()

    def add_image(self, image: str) -> None:
        self._images.add(image)

    def lose_image(self, image: str) -> None:
        """Remove an image from under its containers, like another user of the host."""
        self._images.discard(image)

    def occupy(self, protocol: str, port: int) -> None:
        """Occupy a port by another program of the host."""
        self._occupied.add((protocol, port))

    def vacate(self, protocol: str, port: int) -> None:
        self._occupied.discard((protocol, port))

    def end(
        self, container: str, exit_code: int, *, oom: bool = False, reports: bool = True
    ) -> None:
        """End the processes of a container, or make the engine notice that they were lost.

        With `reports` the program ends first, so that its init reports its exit code.
        """
        held = self._find(container)
        assert held.status is ContainerStatus.RUNNING, f"{container} does not run"
        if held.process is not None:
            self._end_process(held, exit_code if reports else None)
        held.status = ContainerStatus.ENDED
        held.end_time = self._clock.time()
        held.exit_code = exit_code
        held.oom_killed = oom
        self._free_ports(held)
        held.poke()

    def write_files(self, container: str, size: int) -> None:
        """Set the number of bytes that the program has written."""
        self._find(container).written = size

    def bind(self, container: str) -> None:
        """Bind all ports of a running container."""
        self._find(container).bound = True

    def lose_process(self, container: str, exit_code: int | None = None) -> None:
        """End the processes without the engine noticing; with an exit code init reports it."""
        held = self._find(container)
        assert held.process is not None, f"{container} does not run"
        self._end_process(held, exit_code)

    def start_from_outside(self, container: str) -> None:
        """Start a container, again if it runs, like another user of the engine."""
        held = self._find(container)
        if held.status is ContainerStatus.RUNNING:
            self.end(container, 137, reports=False)
        self._start(held)

    def hand(self, container: str) -> None:
        """Begin a hand-over to an init that waits, as an agent does that is killed meanwhile."""
        held = self._find(container)
        assert held.init is InitState.WAITING, f"{container} does not wait"
        held.init = InitState.HANDED

    def execute(self, container: str) -> None:
        """Complete a hand-over that has begun."""
        held = self._find(container)
        assert held.init is InitState.HANDED, f"{container} has not been handed over"
        self._execute(held)

    def forget_start(self, container: str) -> None:
        """Take a running container for one that has never been started."""
        held = self._find(container)
        held.status = ContainerStatus.CREATED
        self._free_ports(held)

    def mislay(self, container: str) -> Callable[[], None]:
        """Make the engine forget a container until the returned function is called."""
        held = self._find(container)
        del self._containers[held.id], self._ids[held.name]

        def find_again() -> None:
            self._containers[held.id] = held
            self._ids[held.name] = held.id

        return find_again

    def write_log(self, container: str, data: bytes) -> None:
        """Write lines to the log, optionally with an incomplete last one."""
        self._find(container).write_log(data, self._numbers, self._clock.time())

    def drop_log(self, container: str, pieces: int) -> None:
        """Drop the oldest parts of a log."""
        held = self._find(container)
        del held.log[:pieces]
        held.dropped += pieces

    def break_log(
        self, container: str, pieces: int, error: errors.AgentError, *, times: int = 1
    ) -> None:
        """Make the next log responses fail after this number of parts."""
        self._find(container).log_breaks += [(pieces, error)] * times

    def damage_log(self, container: str, pieces: range) -> None:
        """Make reads of the whole log skip these parts without an error, as since version 27."""
        self._find(container).unreadable = pieces

    def put_file(self, container: str, path: str, data: bytes) -> None:
        self._find(container).files[path] = data

    # Called by the agent.

    async def info(self) -> EngineInfo:
        async with self._call("info"):
            return EngineInfo("fake", 8, 64 * 2**30, runc="fake runc", kernel="fake kernel")

    async def create(self, spec: ContainerSpec) -> str:
        async with self._call("create", spec.name):
            if spec.image not in self._images:
                raise errors.ImageMissingError(spec.image)
            if spec.name in self._ids:
                raise errors.ContainerExistsError(spec.name)
            held = FakeContainer(spec, f"{next(self._numbers):064x}")
            held.stop_signal = self.stop_signals.get(spec.image, "")
            if spec.prepared:
                held.config = config_digest(spec, self.config_version)
            self._containers[held.id] = held
            self._ids[spec.name] = held.id
            self._notify(held)
            return held.id

    async def config_digest(self, spec: ContainerSpec) -> str:
        async with self._call("config_digest"):
            return config_digest(spec, self.config_version)

    async def rename(self, container: str, name: str) -> None:
        async with self._call("rename", container):
            held = self._find(container)
            if self._ids.get(name, held.id) != held.id:
                raise errors.ContainerExistsError(name)
            del self._ids[held.name]
            held.renamed = name
            self._ids[name] = held.id

    async def program(self, image: str, args: Sequence[str]) -> tuple[str, ...]:
        async with self._call("program", image):
            if image not in self._images:
                raise errors.ImageMissingError(image)
            entry_point, command = self.programs.get(image, ((GAME,), ()))
            program = (*entry_point, *(args or command))
            if not program:
                raise errors.ImageCannotRunError("it names no command and none is given")
            return program

    async def start(self, container: str, channel: Path) -> Container:
        async with self._call("start", container):
            return self._start(self._find(container))

    async def hand_over(self, container: Container, channel: Path, start: Start) -> None:
        async with self._call("hand_over", container.container):
            held = self._find(container.container)
            if held.process is None or held.process != container.process:
                raise errors.HandOverFailedError("hand over", "its init has ended")
            if held.init is not InitState.WAITING:
                raise errors.HandOverFailedError("hand over", "its init does not wait")
            held.starts.append(start)
            refusal = self.cannot_execute.get(start.program[0])
            if held.spec.image in self.cannot_run:
                refusal = ("as scripted", 127)
            if refusal is not None:
                cause, exit_code = refusal
                self.end(held.id, exit_code, reports=False)
                raise errors.ImageCannotRunError(cause)
            self._execute(held, in_place=start.in_place)

    def _execute(self, held: FakeContainer, *, in_place: bool = False) -> None:
        is_child = held.spec.init and not in_place
        held.init = InitState.RUNNING if is_child else InitState.UNKNOWN
        if is_child:
            self.add_process(held.id, "game")
        held.bound = self.binds_at_once
        self.executed[held.id] += 1

    def _start(self, held: FakeContainer) -> Container:
        if held.status is ContainerStatus.RUNNING:
            return held.described()
        if held.spec.image in self.cannot_start:
            raise errors.ImageCannotRunError("as scripted")
        self._take_ports(held)
        number = next(self._numbers)
        held.process = Process(pid=100_000 + number, start_ticks=number)
        held.init = InitState.WAITING
        held.status = ContainerStatus.RUNNING
        held.oom_killed = False
        held.error = ""
        held.bound = False
        self._ends[held.process] = asyncio.get_running_loop().create_future()
        if not held.spec.init:
            self._execute(held)
        self._notify(held)
        return held.described()

    async def inspect(self, container: str) -> Container:
        async with self._call("inspect", container):
            return self._find(container).described()

    async def list(self, agent_id: str) -> list[Container]:
        async with self._call("list"):
            return self.containers(agent_id)

    async def kill(self, container: str, signal: str) -> None:
        async with self._call("kill", container):
            self._signal(self._find(container), signal)

    async def remove(self, container: str) -> None:
        async with self._call("remove", container):
            with contextlib.suppress(errors.ContainerGoneError):
                held = self._find(container)
                if held.status is ContainerStatus.RUNNING and held.process is not None:
                    self.end(held.id, 137, reports=False)
                self._free_ports(held)
                del self._containers[held.id], self._ids[held.name]
                held.removed = True
                held.poke()

    async def end_forgotten(self, container: str) -> None:
        async with self._call("end_forgotten", container):
            with contextlib.suppress(errors.ContainerGoneError):
                held = self._find(container)
                if held.status is not ContainerStatus.RUNNING and held.process is not None:
                    self._end_process(held)

    async def wait_end(self, process: Process, channel: Path | None = None) -> ReportedEnd | None:
        await self._end_below(process)
        end = self._ends.get(process)
        if end is None:
            return None
        reported = await asyncio.shield(end)
        return None if channel is None else reported

    async def read_load(self, processes: Sequence[Process]) -> EngineLoad:
        relays = {
            held.process: held.relay_seconds for held in self.all if held.process is not None
        }
        known = {each: relays[each] for each in processes if each in relays}
        return EngineLoad(self.cpu_seconds, known)

    async def has_bound(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> bool:
        return any(held.process == process and held.bound for held in self.all)

    @contextlib.asynccontextmanager
    async def logs(
        self,
        container: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        longest: float | None = None,
    ) -> AsyncIterator[AsyncIterator[Sequence[LogPiece]]]:
        async with self._call("logs", container):
            held = self._find(container)
        pieces = held.read_log(
            follow=follow and held.process is not None, tail=tail, check=self._check_available
        )
        async with contextlib.aclosing(pieces) as found:
            yield found

    @contextlib.asynccontextmanager
    async def archive(self, container: str, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._call("archive", container):
            tar = packed(self._find(container).files, path)
        async with contextlib.aclosing(chunks_of(tar)) as found:
            yield found

    @contextlib.asynccontextmanager
    async def pull(
        self, image: str, credentials: Credentials | None = None
    ) -> AsyncIterator[AsyncIterator[PullProgress]]:
        if "@" not in image:
            raise errors.InvalidArgumentError("image", "it is not a reference by digest")
        async with self._call("pull", image):
            if image not in self.registry | self._images:
                raise errors.ImageNotFoundError(image)
        async with contextlib.aclosing(self._pull_steps(image)) as found:
            yield found

    async def remove_image(self, image: str) -> None:
        async with self._call("remove_image", image):
            if any(held.spec.image == image for held in self.all):
                raise errors.ImageInUseError(image, "a container was made of it")
            self._images.discard(image)

    async def images(self) -> dict[str, int]:
        async with self._call("images"):
            return dict.fromkeys(self._images, IMAGE_BYTES)

    async def written_bytes(self, container: str) -> int:
        async with self._call("written_bytes", container):
            return self._find(container).written

    @contextlib.asynccontextmanager
    async def events(self, agent_id: str) -> AsyncIterator[AsyncIterator[str]]:
        async with self._call("events"):
            queue: asyncio.Queue[str | None] = asyncio.Queue()
            self._watchers[queue] = agent_id
        try:
            async with contextlib.aclosing(self._read_events(queue)) as found:
                yield found
        finally:
            del self._watchers[queue]

    async def close(self) -> None:
        """Do nothing: containers outlive their clients."""

    # Internals.

    def _break_streams(self) -> None:
        for held in self.all:
            held.poke()
        for queue in self._watchers:
            queue.put_nowait(None)

    def _signal(self, held: FakeContainer, signal: str) -> None:
        if signal not in {"SIGTERM", "SIGKILL"}:
            for program in held.tree[:1]:
                program.got.append(signal)  # it may ignore it
            return
        if held.process is None and held.status is ContainerStatus.RUNNING:
            if signal == "SIGKILL":
                self.end(held.id, 0)  # it notices that the process was lost
            return
        ignored = self.ignores_sigterm if signal == "SIGTERM" else self.survives_sigkill
        if signal == "SIGTERM" and held.init is InitState.WAITING:
            ignored = set()  # programs ignore it
        if held.process is not None and not ignored & {held.id, held.name}:
            exit_code = {"SIGTERM": 143, "SIGKILL": 137}[signal]
            self.end(held.id, exit_code, reports=signal == "SIGTERM")  # SIGKILL ends init first

    def _end_process(self, held: FakeContainer, exit_code: int | None = None) -> None:
        """End the processes of a container; its init reports an exit code if the program ran."""
        assert held.process is not None
        reported = None
        if exit_code is not None and held.init is InitState.RUNNING:
            reported = ReportedEnd(wait_status(exit_code), self._clock.time())
        self._ends.pop(held.process).set_result(reported)
        held.end_tree()
        held.process = None
        held.init = InitState.UNKNOWN

    def _find(self, container: str) -> FakeContainer:
        held = self._containers.get(self._ids.get(container, container))
        if held is None:
            raise errors.ContainerGoneError(container)
        return held

    def _take_ports(self, held: FakeContainer) -> None:
        if held.spec.network_mode is NetworkMode.HOST:
            return
        wanted = [(port.protocol.value, port.host) for port in held.spec.ports]
        for protocol, port in wanted:
            if (protocol, port) in self._occupied or (protocol, port) in self._published:
                raise errors.PortTakenError(protocol, port)
        self._published.update(dict.fromkeys(wanted, held.id))

    def _free_ports(self, held: FakeContainer) -> None:
        for port in held.spec.ports:
            if self._published.get((port.protocol.value, port.host)) == held.id:
                del self._published[port.protocol.value, port.host]

    def _notify(self, held: FakeContainer) -> None:
        for queue, agent_id in self._watchers.items():
            if agent_id == held.spec.agent_id and not held.spec.prepared:
                queue.put_nowait(held.spec.internal_id)

    async def _read_events(self, queue: asyncio.Queue[str | None]) -> AsyncGenerator[str]:
        while (internal_id := await queue.get()) is not None:
            yield internal_id
        self._check_available()

    async def _pull_steps(self, image: str) -> AsyncGenerator[PullProgress]:
        if image not in self._images:
            yield PullProgress(layers=1, layers_done=0, received_bytes=1024)
            self._check_available()
            self._images.add(image)
        yield PullProgress(layers=1, layers_done=1, received_bytes=1024)
