"""An engine in memory, on a fake clock unless it is given another.

`FakeEngine` keeps the contract of `agent.domain.engine.Engine` as Docker does
(contract/test_engine.py).
"""

import asyncio
import contextlib
import itertools
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from agent.domain import errors
from agent.domain.engine import (
    Container,
    ContainerSpec,
    ContainerStatus,
    Credentials,
    EngineInfo,
    EngineLoad,
    LogPiece,
    OnStarted,
    container_name,
)
from agent.domain.session import Port, Process
from tests.support.fake_clock import FakeClock
from tests.support.fake_container import FakeContainer, packed
from tiltyard.contract import NetworkMode, PullProgress
from tiltyard.runtime.clock import Clock

__all__ = ["FakeClock", "FakeEngine"]

IMAGE_BYTES = 10 * 2**20  # The size of each image in bytes
_CHUNK = 64 * 1024


class EveryImage(set[str]):
    """A registry that has any image."""

    def __contains__(self, image: object) -> bool:
        return True

    def __or__(self, other: object) -> Any:
        return self


class FakeEngine:
    """A container engine whose containers are entries in a table.

    Tests fill the sets `cannot_run` (images), `ignores_sigterm` and `survives_sigkill` (names of
    containers) and `registry` (images that can be pulled). Methods take container names or ids.
    If `binds_at_once` is False, a started program binds its ports only at `bind`.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.binds_at_once = True
        self.cannot_run: set[str] = set()
        self.ignores_sigterm: set[str] = set()
        self.survives_sigkill: set[str] = set()
        self.registry: set[str] = set()
        self.calls: deque[tuple[str, str]] = deque(maxlen=1000)
        self._clock: Clock = clock or FakeClock()
        self.cpu_seconds: float | None = 0.0
        """Processor seconds that the engine has used."""
        self._images: set[str] = set()
        self._containers: dict[str, FakeContainer] = {}
        self._ids: dict[str, str] = {}
        self._occupied: set[tuple[str, int]] = set()
        self._published: dict[tuple[str, int], str] = {}
        self._failures: dict[str, deque[errors.AgentError]] = defaultdict(deque)
        self._lost: dict[str, int] = defaultdict(int)
        self._gates: dict[str, asyncio.Event] = {}
        self._arrivals: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._ends: dict[Process, asyncio.Event] = {}
        self._watchers: dict[asyncio.Queue[str | None], str] = {}
        self._numbers = itertools.count(1)
        self._unavailable = False

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

    def count(self, call: str) -> int:
        """The number of calls of this name."""
        return sum(name == call for name, _ in self.calls)

    def containers(self, agent_id: str) -> list[Container]:
        """The containers of an agent, as the engine describes them."""
        return [held.described() for held in self.all if held.spec.agent_id == agent_id]

    # Controlled by tests.

    @property
    def unavailable(self) -> bool:
        """True while the engine does not answer; setting it breaks open streams."""
        return self._unavailable

    @unavailable.setter
    def unavailable(self, value: bool) -> None:
        self._unavailable = value
        if value:
            for held in self.all:
                held.poke()
            for queue in self._watchers:
                queue.put_nowait(None)

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

    def hold(self, call: str) -> None:
        """Block calls of this name before they do anything, until `release`."""
        self._gates[call] = asyncio.Event()
        self._arrivals[call] = asyncio.Event()

    async def held(self, call: str) -> None:
        """Wait until a call is blocked there."""
        await self._arrivals[call].wait()

    async def held_in(self, call: str, work: Awaitable[Any]) -> asyncio.Task[Any]:
        """Begin work, and wait until a call of this name is blocked."""
        self.hold(call)
        begun = asyncio.ensure_future(work)
        await self.held(call)
        return begun

    def release(self, call: str) -> None:
        self._gates.pop(call).set()

    def heal(self) -> None:
        """Remove all scripted failures."""
        for call in list(self._gates):
            self.release(call)
        self._failures.clear()
        self._lost.clear()
        self.survives_sigkill.clear()
        self.unavailable = False

    def fail_next(self, call: str, error: errors.AgentError, *, times: int = 1) -> None:
        """Make the next calls of this name fail without effect; repeated calls queue up."""
        self._failures[call] += [error] * times

    def answer_lost_next(self, call: str) -> None:
        """Make the next call of this name take effect and then raise EngineTimeoutError."""
        self._lost[call] += 1

    def end(self, container: str, exit_code: int, *, oom: bool = False) -> None:
        """End the process of a container, or make the engine notice that it was lost."""
        held = self._find(container)
        assert held.status is ContainerStatus.RUNNING, f"{container} does not run"
        process = held.process
        held.process = None
        held.status = ContainerStatus.ENDED
        held.end_time = self._clock.time()
        held.exit_code = exit_code
        held.oom_killed = oom
        self._free_ports(held)
        held.poke()
        if process is not None:
            self._ends.pop(process).set()

    def write_files(self, container: str, size: int) -> None:
        """Set the number of bytes that the program has written."""
        self._find(container).written = size

    def bind(self, container: str) -> None:
        """Bind all ports of a running container."""
        self._find(container).bound = True

    def lose_process(self, container: str) -> None:
        """End the process without the engine noticing."""
        held = self._find(container)
        assert held.process is not None, f"{container} does not run"
        self._ends.pop(held.process).set()
        held.process = None

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

    def rename(self, container: str, name: str) -> None:
        """Rename a container, like another user of the host."""
        held = self._find(container)
        del self._ids[held.name]
        held.renamed = name
        self._ids[name] = held.id

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
        name = container_name(spec.internal_id)
        async with self._call("create", name):
            if spec.image not in self._images:
                raise errors.ImageMissingError(spec.image)
            if name in self._ids:
                raise errors.ContainerExistsError(name)
            held = FakeContainer(spec, f"{next(self._numbers):064x}")
            self._containers[held.id] = held
            self._ids[name] = held.id
            self._notify(held)
            return held.id

    async def start(self, container: str, on_started: OnStarted | None = None) -> Container:
        async with self._call("start", container):
            found = self._start(self._find(container))
        if on_started is not None:
            await on_started()
        return found

    def _start(self, held: FakeContainer) -> Container:
        if held.status is ContainerStatus.RUNNING:
            return held.described()
        if held.spec.image in self.cannot_run:
            raise errors.ImageCannotRunError("as scripted")
        self._take_ports(held)
        number = next(self._numbers)
        held.process = Process(pid=100_000 + number, start_ticks=number)
        held.status = ContainerStatus.RUNNING
        held.start_time = self._clock.time()
        held.oom_killed = False
        held.error = ""
        held.bound = self.binds_at_once
        self._ends[held.process] = asyncio.Event()
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
                    self.end(held.id, 137)
                self._free_ports(held)
                del self._containers[held.id], self._ids[held.name]
                held.removed = True
                held.poke()

    async def end_forgotten(self, container: str) -> None:
        async with self._call("end_forgotten", container):
            with contextlib.suppress(errors.ContainerGoneError):
                held = self._find(container)
                if held.status is not ContainerStatus.RUNNING and held.process is not None:
                    self._ends.pop(held.process).set()
                    held.process = None

    async def signal_process(self, process: Process, signal: str) -> None:
        for held in self.all:
            if held.process == process:
                self._signal(held, signal)

    async def wait_end(self, process: Process) -> None:
        ended = self._ends.get(process)
        if ended is not None:
            await ended.wait()

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
        async with contextlib.aclosing(_chunks(tar)) as found:
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

    @contextlib.asynccontextmanager
    async def _call(self, call: str, subject: str = "") -> AsyncIterator[None]:
        self.calls.append((call, subject))
        await asyncio.sleep(0)
        while (gate := self._gates.get(call)) is not None:
            self._arrivals[call].set()
            await gate.wait()
        self._check_available()
        if self._failures[call]:
            raise self._failures[call].popleft()
        yield
        if self._lost[call]:
            self._lost[call] -= 1
            raise errors.EngineTimeoutError(call)

    def _check_available(self) -> None:
        if self._unavailable:
            raise errors.EngineUnavailableError("the fake engine is set not to answer")

    def _signal(self, held: FakeContainer, signal: str) -> None:
        if signal not in {"SIGTERM", "SIGKILL"}:
            return  # the program may ignore it
        if held.process is None and held.status is ContainerStatus.RUNNING:
            if signal == "SIGKILL":
                self.end(held.id, 0)  # it notices that the process was lost
            return
        ignored = self.ignores_sigterm if signal == "SIGTERM" else self.survives_sigkill
        if held.process is not None and not ignored & {held.id, held.name}:
            self.end(held.id, {"SIGTERM": 143, "SIGKILL": 137}[signal])

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
            if agent_id == held.spec.agent_id:
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


async def _chunks(data: bytes) -> AsyncGenerator[bytes]:
    for begin in range(0, len(data), _CHUNK):
        yield data[begin : begin + _CHUNK]
        await asyncio.sleep(0)
