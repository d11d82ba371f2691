"""An engine in memory, on a fake clock unless it is given another.

`FakeEngine` keeps the contract of `agent.domain.engine.Engine`: see contract/test_engine.py.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from agent.domain import errors
from agent.domain.containers.engine import (
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
from agent.domain.sessions.session import Process
from agent.domain.sessions.stopping import ALL_SIGNALS, Member
from tests.support.fake_clock import FakeClock
from tests.support.fake_container import (
    FakeContainer,
    chunks_of,
    config_digest,
    packed,
    wait_status,
)
from tests.support.fake_ends import FakeEnds
from tests.support.fake_events import FakeEvents
from tests.support.fake_images import FakeImages
from tests.support.fake_ports import FakePorts
from tests.support.fake_processes import FakeProcess, FakeProcesses
from tiltyard.images import PullProgress
from tiltyard.runtime.clock import Clock

GAME = "/game"  # The program of an image


class FakeEngine(FakeProcesses):
    """A container engine whose containers are entries in a table.

    Tests fill the sets `cannot_start` (images whose containers the engine cannot start),
    `cannot_run` (images whose program cannot be executed), `ignores_sigterm` and
    `survives_sigkill` (names of containers), and the tables `programs` (entry point and command of
    an image, else GAME) and `cannot_execute` (why and with which exit code a program cannot be
    executed). Methods take container names or ids. If `binds_at_once` is False, a program binds
    its ports only at `FakeContainer.bind`, else when it is executed. Channels are not used. A
    container without an init, as older agents made them, runs its game when it is started.
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
        self.image_store = FakeImages()
        self._clock: Clock = clock or FakeClock()
        self.cpu_seconds: float | None = 0.0
        """Processor seconds that the engine has used."""
        self._containers: dict[str, FakeContainer] = {}
        self._ids: dict[str, str] = {}
        self.ports = FakePorts()
        self._ends = FakeEnds()
        self._events = FakeEvents()

    # Observed by tests.

    @property
    def living(self) -> set[Process]:
        """The running processes."""
        return self._ends.living

    @property
    def all(self) -> list[FakeContainer]:
        """The containers of all agents."""
        return list(self._containers.values())

    def containers(self, agent_id: str) -> list[Container]:
        """The containers of an agent, as the engine describes them."""
        return [held.described() for held in self.all if held.spec.agent_id == agent_id]

    def find(self, container: str) -> FakeContainer:
        """Return a container; raises ContainerGoneError."""
        held = self._containers.get(self._ids.get(container, container))
        if held is None:
            raise errors.ContainerGoneError(container)
        return held

    # Controlled by tests.

    def heal(self) -> None:
        """Remove all scripted failures."""
        super().heal()
        self.survives_sigkill.clear()

    def end(
        self, container: str, exit_code: int, *, oom: bool = False, reports: bool = True
    ) -> None:
        """End the processes of a container, or make the engine notice that they were lost.

        With `reports` the program ends first, so that its init reports its exit code.
        """
        held = self.find(container)
        assert held.status is ContainerStatus.RUNNING, f"{container} does not run"
        if held.process is not None:
            self._end_process(held, exit_code if reports else None)
        held.status = ContainerStatus.ENDED
        held.end_time = self._clock.time()
        held.exit_code = exit_code
        held.oom_killed = oom
        self.ports.free(held)
        held.poke()

    def lose_process(self, container: str, exit_code: int | None = None) -> None:
        """End the processes without the engine noticing; with an exit code init reports it."""
        held = self.find(container)
        assert held.process is not None, f"{container} does not run"
        self._end_process(held, exit_code)

    def start_from_outside(self, container: str) -> None:
        """Start a container, again if it runs, like another user of the engine."""
        held = self.find(container)
        if held.status is ContainerStatus.RUNNING:
            self.end(container, 137, reports=False)
        self._start(held)

    def hand(self, container: str) -> None:
        """Begin a hand-over to an init that waits, as an agent does that is killed meanwhile."""
        held = self.find(container)
        assert held.init is InitState.WAITING, f"{container} does not wait"
        held.init = InitState.HANDED

    def execute(self, container: str) -> None:
        """Complete a hand-over that has begun."""
        held = self.find(container)
        assert held.init is InitState.HANDED, f"{container} has not been handed over"
        self._execute(held)

    def forget_start(self, container: str) -> None:
        """Take a running container for one that has never been started."""
        held = self.find(container)
        held.status = ContainerStatus.CREATED
        self.ports.free(held)

    def mislay(self, container: str) -> Callable[[], None]:
        """Make the engine forget a container until the returned function is called."""
        held = self.find(container)
        del self._containers[held.id], self._ids[held.name]

        def find_again() -> None:
            self._containers[held.id] = held
            self._ids[held.name] = held.id

        return find_again

    def write_log(self, container: str, data: bytes) -> None:
        """Write lines to the log, optionally with an incomplete last one."""
        self.find(container).write_log(data, self._numbers, self._clock.time())

    # Called by the agent.

    async def info(self) -> EngineInfo:
        async with self._call("info"):
            return EngineInfo("fake", 8, 64 * 2**30, runc="fake runc", kernel="fake kernel")

    async def create(self, spec: ContainerSpec) -> str:
        async with self._call("create", spec.name):
            self.image_store.require(spec.image)
            if spec.name in self._ids:
                raise errors.ContainerExistsError(spec.name)
            held = FakeContainer(spec, f"{next(self._numbers):064x}")
            held.stop_signal = self.stop_signals.get(spec.image, "")
            if spec.prepared:
                held.config = config_digest(spec, self.config_version)
            self._containers[held.id] = held
            self._ids[spec.name] = held.id
            self._events.notify(held)
            return held.id

    async def config_digest(self, spec: ContainerSpec) -> str:
        async with self._call("config_digest"):
            return config_digest(spec, self.config_version)

    async def rename(self, container: str, name: str) -> None:
        async with self._call("rename", container):
            held = self.find(container)
            if self._ids.get(name, held.id) != held.id:
                raise errors.ContainerExistsError(name)
            del self._ids[held.name]
            held.renamed = name
            self._ids[name] = held.id

    async def program(self, image: str, args: Sequence[str]) -> tuple[str, ...]:
        async with self._call("program", image):
            self.image_store.require(image)
            entry_point, command = self.programs.get(image, ((GAME,), ()))
            program = (*entry_point, *(args or command))
            if not program:
                raise errors.ImageCannotRunError("it names no command and none is given")
            return program

    async def start(self, container: str, channel: Path) -> Container:
        async with self._call("start", container):
            return self._start(self.find(container))

    async def hand_over(self, container: Container, channel: Path, start: Start) -> None:
        async with self._call("hand_over", container.container):
            held = self.find(container.container)
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
        elif in_place and held.process is not None:
            held.own_init = FakeProcess(Member(held.process, 0, "own-init", caught=ALL_SIGNALS))
        held.bound = self.binds_at_once
        self.executed[held.id] += 1

    def _start(self, held: FakeContainer) -> Container:
        if held.status is ContainerStatus.RUNNING:
            return held.described()
        if held.spec.image in self.cannot_start:
            raise errors.ImageCannotRunError("as scripted")
        self.ports.take(held)
        number = next(self._numbers)
        held.process = Process(pid=100_000 + number, start_ticks=number)
        held.init = InitState.WAITING
        held.status = ContainerStatus.RUNNING
        held.oom_killed = False
        held.error = ""
        held.bound = False
        self._ends.begin(held.process)
        if not held.spec.init:
            self._execute(held)
        self._events.notify(held)
        return held.described()

    async def inspect(self, container: str) -> Container:
        async with self._call("inspect", container):
            return self.find(container).described()

    async def list(self, agent_id: str) -> list[Container]:
        async with self._call("list"):
            return self.containers(agent_id)

    async def kill(self, container: str, signal: str) -> None:
        async with self._call("kill", container):
            self._signal(self.find(container), signal)

    async def remove(self, container: str) -> None:
        async with self._call("remove", container):
            with contextlib.suppress(errors.ContainerGoneError):
                held = self.find(container)
                if held.status is ContainerStatus.RUNNING and held.process is not None:
                    self.end(held.id, 137, reports=False)
                self.ports.free(held)
                del self._containers[held.id], self._ids[held.name]
                held.removed = True
                held.poke()

    async def end_forgotten(self, container: str) -> None:
        async with self._call("end_forgotten", container):
            with contextlib.suppress(errors.ContainerGoneError):
                held = self.find(container)
                if held.status is not ContainerStatus.RUNNING and held.process is not None:
                    self._end_process(held)

    async def wait_end(self, process: Process, channel: Path | None = None) -> ReportedEnd | None:
        await self._end_below(process)
        return await self._ends.wait(process, reads_report=channel is not None)

    async def read_load(self, processes: Sequence[Process]) -> EngineLoad:
        relays = {
            held.process: held.relay_seconds for held in self.all if held.process is not None
        }
        known = {each: relays[each] for each in processes if each in relays}
        return EngineLoad(self.cpu_seconds, known)

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
            held = self.find(container)
        pieces = held.read_log(
            follow=follow and held.process is not None, tail=tail, check=self._check_available
        )
        async with contextlib.aclosing(pieces) as found:
            yield found

    @contextlib.asynccontextmanager
    async def archive(self, container: str, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._call("archive", container):
            tar = packed(self.find(container).files, path)
        async with contextlib.aclosing(chunks_of(tar)) as found:
            yield found

    @contextlib.asynccontextmanager
    async def pull(
        self, image: str, credentials: Credentials | None = None
    ) -> AsyncIterator[AsyncIterator[PullProgress]]:
        if "@" not in image:
            raise errors.InvalidArgumentError("image", "it is not a reference by digest")
        async with self._call("pull", image):
            self.image_store.require_for_pull(image)
        async with contextlib.aclosing(
            self.image_store.pull(image, self._check_available)
        ) as found:
            yield found

    async def remove_image(self, image: str) -> None:
        async with self._call("remove_image", image):
            if any(held.spec.image == image for held in self.all):
                raise errors.ImageInUseError(image, "a container was made of it")
            self.image_store.lose(image)

    async def images(self) -> dict[str, int]:
        async with self._call("images"):
            return self.image_store.sizes()

    async def written_bytes(self, container: str) -> int:
        async with self._call("written_bytes", container):
            return self.find(container).written

    @contextlib.asynccontextmanager
    async def events(self, agent_id: str) -> AsyncIterator[AsyncIterator[str]]:
        async with self._call("events"):
            queue = self._events.watch(agent_id)
        try:
            events = self._events.read(queue, self._check_available)
            async with contextlib.aclosing(events) as found:
                yield found
        finally:
            self._events.forget(queue)

    async def close(self) -> None:
        """Do nothing: containers outlive their clients."""

    # Internals.

    def _break_streams(self) -> None:
        for held in self.all:
            held.poke()
        self._events.end_streams()

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
            reported = ReportedEnd(
                wait_status(exit_code), self._clock.time(), limits_met=held.reported_limits
            )
        self._ends.end(held.process, reported)
        held.end_tree()
        held.process = None
        held.init = InitState.UNKNOWN
        held.reported_limits = ()
