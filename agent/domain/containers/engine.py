"""The interface to a container engine and its data types. Pure.

`DockerEngine` and the tests' `FakeEngine` pass one contract, tests/contract/test_engine.py.
"""

import enum
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from typing import Protocol as Interface

from agent.domain.host.kernel_limits import ContainerLimits
from agent.domain.sessions.session import Port, Process, Session
from agent.domain.sessions.stopping import Member
from tiltyard.contract import Capability, NetworkMode, Resources
from tiltyard.ends import Limit, PortBindings
from tiltyard.images import PullProgress

LABEL_AGENT = "io.tiltyard.agent"
"""Id of the agent that owns the container; containers without it are never touched."""
LABEL_SESSION = "io.tiltyard.session"  # Internal id of the session
LABEL_PREPARED = "io.tiltyard.prepared"
"""Id of a prepared container, in place of LABEL_SESSION, also while a session uses it."""
LABEL_RECORD = "io.tiltyard.record"
"""The session's record as of its creation, without arguments and environment."""
LABEL_INIT = "io.tiltyard.init"
"""File name of the container's init, which must stay on the host as long as the container."""
LABEL_CONFIG = "io.tiltyard.config"  # `Engine.config_digest` as of the creation; prepared only

NAME_PREFIX = "tiltyard-"  # Of the name of a session's container; its internal id follows
LOG_BYTES = 64 * 2**20
"""Retained output of a session. An engine drops no older bytes while it holds fewer."""
LONGEST_PIECE_BYTES = 16 * 1024  # A longer line is split into pieces of this size


def container_name(internal_id: str) -> str:
    """The name of a session's container; unique, so that a repeated create fails."""
    return f"{NAME_PREFIX}{internal_id}"


def prepared_name(prepared_id: str) -> str:
    """The name of a prepared container until a session has taken it."""
    return f"tiltyard-prepared-{prepared_id}"


def name_of(session: Session) -> str:
    """Return the id of a session's container, or its name while it has no id.

    Other programs may rename containers. A template names the container to prepare.
    """
    named = prepared_name if session.is_template else container_name
    return session.container or named(session.internal_id)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to create, whose init waits for its program once it is started.

    `public_dir` is an absolute path on the host, mounted read-only at /run/tiltyard; `init` is the
    path of the init program there. `disk_bytes` limits the writable layer, 0 for no limit; `pids`
    limits processes and threads, and `shm_bytes` is the size of /dev/shm. It has no capabilities
    but `capabilities`. With `prepared` no session has the container yet, and `internal_id` is the
    prepared container's id.
    """

    internal_id: str
    agent_id: str
    image: str
    init: str
    network_mode: NetworkMode
    ports: tuple[Port, ...]
    bind_address: str
    reservation: Resources
    limits: Resources
    public_dir: str
    record: str
    pids: int
    shm_bytes: int
    gpu_ids: tuple[str, ...] = ()
    disk_bytes: int = 0
    capabilities: tuple[Capability, ...] = ()
    prepared: bool = False

    @property
    def name(self) -> str:
        """The container's name at its creation."""
        if self.prepared:
            return prepared_name(self.internal_id)
        return container_name(self.internal_id)

    @property
    def labels(self) -> dict[str, str]:
        """The container's labels; a prepared container also has LABEL_CONFIG."""
        owner = LABEL_PREPARED if self.prepared else LABEL_SESSION
        return {
            LABEL_AGENT: self.agent_id,
            owner: self.internal_id,
            LABEL_RECORD: self.record,
            LABEL_INIT: PurePosixPath(self.init).name,
        }


@dataclass(frozen=True, slots=True)
class Start:
    """The contents of a hand-over: what a container's init executes.

    `program` is the entry point with its arguments. `env` is added to the variables that the
    image sets; HOME is /tmp if neither sets it and the user has no entry in /etc/passwd. With
    `in_place` the program becomes the first process itself, not a child of init.
    """

    program: tuple[str, ...]
    env: Mapping[str, str]
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """The end of a program as the container's init reported it; a container may lie.

    `status` is that of wait(2). `time` is in Unix seconds. `limits_met`:
    limits that it had met.
    """

    status: int
    time: float
    limits_met: tuple[Limit, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code that an engine reports for it; 128 plus the number of a signal."""
        signal = self.status & 0x7F
        return 128 + signal if signal else self.status >> 8 & 0xFF


class InitState(enum.Enum):
    """The state of the first process of a container, by its name."""

    BEGINNING = "beginning"  # It does not wait yet
    WAITING = "waiting"  # For a hand-over
    HANDED = "handed"  # A hand-over has begun
    RUNNING = "running"  # The program has been executed
    UNKNOWN = "unknown"  # There is no process, or another program is first


class ContainerStatus(enum.Enum):
    """The engine's status of a container."""

    CREATED = "created"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Container:
    """A container as the engine describes it at one moment.

    `process`, its first, is set only while that process lives: an engine may report a container as
    running whose process is gone. `init` is the state of that process. `exit_code` and `end_time`
    are of the last run, None before its end. `address` is the one on its bridge while it runs,
    `ipv6_address` that of IPv6, if any.
    `stop_signal` and `home`, the variable HOME, are those of its image, empty if it sets none.
    `starts_as_root`: its image names no other user.
    """

    container: str
    name: str
    status: ContainerStatus
    labels: Mapping[str, str]
    process: Process | None = None
    init: InitState = InitState.UNKNOWN
    exit_code: int | None = None
    oom_killed: bool = False
    end_time: float | None = None
    error: str = ""
    address: str = ""
    ipv6_address: str = ""
    stop_signal: str = ""
    home: str = ""
    starts_as_root: bool = False

    @property
    def is_running(self) -> bool:
        """True if the engine reports it as running, regardless of the process."""
        return self.status is ContainerStatus.RUNNING

    @property
    def waits(self) -> bool:
        """True if its init waits for a hand-over, or is about to."""
        return self.init in {InitState.BEGINNING, InitState.WAITING}

    @property
    def executes(self) -> bool:
        """True if its process lives and has been handed its program, or needs no hand-over."""
        return self.process is not None and not self.waits

    @property
    def has_lost_process(self) -> bool:
        """True if the engine reports it as running but its process is gone."""
        return self.is_running and self.process is None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine and its machine; unreported values are empty.

    `data_root` has its containers, `image_root` its images and what containers write. `platform`:
    that of the images that it runs, such as "linux/amd64".
    """

    version: str
    cpus: int
    memory_bytes: int
    warnings: tuple[str, ...] = ()
    data_root: str = ""
    image_root: str = ""
    runc: str = ""
    kernel: str = ""
    platform: str = ""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Registry credentials; never logged."""

    username: str
    password: str = field(repr=False)


class LogPiece(NamedTuple):
    """A log line with its newline, or a piece of a long one.

    `time` is the engine's nanosecond timestamp of the line's start: distinct for lines of one
    stream, equal for pieces of one line. It may jump with the wall clock.
    """

    stream: int
    time: bytes
    data: bytes
    begins_line: bool = True
    ends_line: bool = True

    @property
    def size(self) -> int:
        """Upper estimate of the engine's bytes for it, the unit of LOG_BYTES."""
        line = self.begins_line and self.data.endswith(b"\n")
        return len(self.data) + (_LINE_OVERHEAD if line else _PIECE_OVERHEAD)


_LINE_OVERHEAD = 32
_PIECE_OVERHEAD = 128
"""Docker 20.10's driver `local` adds at most 29 bytes to a line, 102 to a piece."""


class EngineLoad(NamedTuple):
    """Processor seconds that an engine has used so far: `total`, None if unknown.

    `relays`: of the helper that relays the output of each container, by its first process.
    """

    total: float | None
    relays: Mapping[Process, float]


class Engine(Interface):
    """A container engine. Every call has its own deadline.

    All methods raise EngineUnavailableError, EngineTimeoutError (outcome unknown: read again) and
    EngineError; methods on one container, except `remove`, ContainerGoneError.
    """

    async def info(self) -> EngineInfo:
        """Describe the engine; also its health check."""
        ...

    async def program(self, image: str, args: Sequence[str]) -> tuple[str, ...]:
        """Return what a container of this image executes: entry point, and `args` or the command.

        Raises:
            ImageMissingError: The image is not on the host.
            ImageCannotRunError: No container of it can run.
        """
        ...

    async def create(self, spec: ContainerSpec) -> str:
        """Create a container and return its id.

        Raises:
            ImageMissingError: The image is not on the host.
            ContainerExistsError: The name is taken.
        """
        ...

    async def config_digest(self, spec: ContainerSpec) -> str:
        """Return a digest of everything that `create` fixes at present for containers like this.

        Equal for two specs that differ only in their ids, record, public directory and host ports;
        another one after a change of the agent, its settings or the engine.
        """
        ...

    async def rename(self, container: str, name: str) -> None:
        """Rename a container; no-op if it has the name.

        Raises:
            ContainerExistsError: Another container has the name.
        """
        ...

    async def start(self, container: str, channel: Path) -> Container:
        """Start a container and describe it once its init waits; no-op if it runs.

        `channel`: the folder of the FIFOs between the agent and this container's init. After an
        error the container remains. It may have been handed over, or its init be unknown, only if
        it ran before.

        Raises:
            PortTakenError: Another process has one of its ports.
            ImageCannotRunError: The engine can run nothing in it; its user may not exist.
        """
        ...

    async def hand_over(self, container: Container, channel: Path, start: Start) -> None:
        """Make a waiting init execute a program, once; `container` is as `start` described it.

        Returns when the program has been executed, or after a second without an answer.

        Raises:
            ImageCannotRunError: The program cannot be executed.
            HandOverFailedError: The init does not wait, or ended before it executed the program.
        """
        ...

    async def inspect(self, container: str) -> Container:
        """Describe one container by id or name."""
        ...

    async def list(self, agent_id: str) -> list[Container]:
        """Describe all containers with this agent's label, running or not."""
        ...

    async def written_bytes(self, container: str) -> int:
        """Bytes in a container's writable layer and its image's volumes; slow, walks all files."""
        ...

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal to the first process; no-op if the container does not run."""
        ...

    async def remove(self, container: str) -> None:
        """Remove a container by id or name, running or not; no-op if it is gone."""
        ...

    async def end_forgotten(self, container: str) -> None:
        """End the processes of a container that the engine takes for not running; no-op if none.

        An engine that was killed during a start reports such a container as not running, and
        would remove it while its processes live.
        """
        ...

    async def processes(self, first: Process) -> Sequence[Member]:
        """Return the live processes of a container's program, without asking the engine.

        `first`: the container's first process. It counts while it is an init that waits, and if
        the program has taken its place. Empty if it is gone.
        """
        ...

    async def signal_process(self, process: Process, signal: str) -> None:
        """Send a signal to a process, without asking the engine; no-op if it is gone.

        `signal` is a name or a number, as in `agent.domain.sessions.stopping.signal_number`.
        Raises EngineError if the agent is not allowed to send it.
        """
        ...

    async def wait_end(self, process: Process, channel: Path | None = None) -> ReportedEnd | None:
        """Wait until the process is gone, without asking the engine.

        `channel` is the channel of its container, whose init may report the end of the program.
        Reports that arrive after the hand-over and before the first wait are kept for this wait.
        """
        ...

    async def read_load(self, processes: Sequence[Process]) -> EngineLoad:
        """Read the processor time of the engine and of the relays of containers. Cheap.

        `processes`: the first ones of containers; those that are gone are left out.
        """
        ...

    async def changed_limits(
        self, wanted: Mapping[Process, ContainerLimits]
    ) -> Mapping[Process, tuple[str, ...]]:
        """Return the limits of containers that the kernel does not enforce as wanted. Cheap.

        Containers are named by their first processes; those that are gone are left out.
        """
        ...

    async def set_limits(self, container: str, wanted: ContainerLimits) -> None:
        """Set the limits of a running container again."""
        ...

    async def has_bound(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> bool:
        """True if every port of a container is bound; False if `process`, its first, is gone."""
        ...

    async def bindings(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> PortBindings:
        """Compare the ports of a container with those that its processes have bound.

        `process` is its first. Raises EngineError if the kernel does not answer.
        """
        ...

    def logs(
        self,
        container: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        longest: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[LogPiece]]]:
        """Read stdout and stderr of all runs, or the last `tail` pieces, in recorded order.

        With `follow` it lasts until the run ends, and is reliable for the first LOG_BYTES only:
        after the engine rotates the log, lines are repeated or a whole file is missing. Without
        `follow` the response may restart once.

        Raises:
            EngineUnavailableError: Reading took more than `longest` seconds; until then dropped
                files keep their disk space.
        """
        ...

    def archive(
        self, container: str, path: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read a file or folder as an uncompressed tar; a path that is a link is followed.

        The engine locks the container while the body is read: read at full speed. Raises
        PathNotFoundError.
        """
        ...

    def pull(
        self, image: str, credentials: Credentials | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[PullProgress]]:
        """Pull an image by digest; the iterator ends when the image is on the host.

        Raises:
            ImageNotFoundError: The registry does not have it, or denies access.
            ImageCannotRunError: No container can be created from it.
            RegistryUnavailableError: The registry cannot be reached.
            RegistryTimeoutError: It does not answer in time.
            DiskFullError: The engine's disk is full.
            InvalidArgumentError: The reference has no digest.
        """
        ...

    async def images(self) -> Mapping[str, int]:
        """Unpacked bytes of each image, including shared layers, by digest reference."""
        ...

    async def remove_image(self, image: str) -> None:
        """Remove a reference by digest, and with the last one the image; no-op if it is gone.

        Raises ImageInUseError if a container, running or not, uses it.
        """
        ...

    def events(self, agent_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Internal ids of sessions whose container was created or started; a hint, with gaps.

        Containers that were prepared are left out, also those that a session uses.
        Ends with EngineUnavailableError when the engine goes away.
        """
        ...

    async def close(self) -> None:
        """Release threads and connections."""
        ...
