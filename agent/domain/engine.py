"""What the agent asks of a container engine. Pure: the protocol and the data it speaks of.

`DockerEngine` and the tests' `FakeEngine` keep one contract (tests/contract/test_engine.py).
"""

import enum
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple
from typing import Protocol as Interface

from agent.domain.session import Port, Process, Session
from tiltyard.contract import NetworkMode, PullProgress, Resources

LABEL_AGENT = "io.tiltyard.agent"
"""Id of the agent that owns the container; nothing without it is ever touched."""
LABEL_SESSION = "io.tiltyard.session"
"""Internal id of the session."""
LABEL_RECORD = "io.tiltyard.record"
"""The session's record as of its creation, without arguments and environment."""

LOG_BYTES = 64 * 2**20
"""What is kept of a session's output. An engine drops no older bytes while it holds fewer."""
LONGEST_PIECE_BYTES = 16 * 1024
"""A longer line comes in pieces of this size."""


def container_name(internal_id: str) -> str:
    """The name of a session's container; one name, one session, so a repeated create shows."""
    return f"tiltyard-{internal_id}"


def name_of(session: Session) -> str:
    """What a session's container is called by: its id once that is known, its name until then.

    Containers can be renamed by others.
    """
    return session.container or container_name(session.internal_id)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to create; everything else about it is the same for all.

    `public_dir` is an absolute path on the host, mounted read-only at /run/tiltyard. `disk_bytes`
    is what it may write to its own layer, 0 for no limit.
    """

    internal_id: str
    agent_id: str
    image: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    network_mode: NetworkMode
    ports: tuple[Port, ...]
    bind_address: str
    reservation: Resources
    limits: Resources
    public_dir: str
    record: str
    gpu_ids: tuple[str, ...] = ()
    disk_bytes: int = 0

    @property
    def labels(self) -> dict[str, str]:
        """The labels that name the container's session."""
        return {
            LABEL_AGENT: self.agent_id,
            LABEL_SESSION: self.internal_id,
            LABEL_RECORD: self.record,
        }


class ContainerStatus(enum.Enum):
    """What the engine says of a container."""

    CREATED = "created"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Container:
    """A container as the engine describes it at one moment.

    `process` is set only while a live process with that start time exists on this host: an engine
    may call a container running whose process is gone. `exit_code` and `end_time` are of the
    last run, None before the first end. `address` is its own on its bridge while it runs.
    """

    container: str
    name: str
    status: ContainerStatus
    labels: Mapping[str, str]
    process: Process | None = None
    exit_code: int | None = None
    oom_killed: bool = False
    start_time: float | None = None
    end_time: float | None = None
    error: str = ""
    address: str = ""

    @property
    def is_running(self) -> bool:
        """True when the engine reports it as running, regardless of the process."""
        return self.status is ContainerStatus.RUNNING

    @property
    def has_lost_process(self) -> bool:
        """True when the engine calls it running and its process is gone, for now or good."""
        return self.is_running and self.process is None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine and its machine; `data_root` is the folder with its containers.

    `runc` and `kernel` are their versions; empty if the engine does not report them.
    """

    version: str
    cpus: int
    memory_bytes: int
    warnings: tuple[str, ...] = ()
    data_root: str = ""
    runc: str = ""
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to log in to a registry; never shown."""

    username: str
    password: str = field(repr=False)


class LogPiece(NamedTuple):
    """A line of a log with its newline, or a piece of a long one.

    `time` is the engine's mark of when the line began, to the nanosecond: lines of one stream
    differ in it, pieces of one line do not. It may jump, as the wall clock does.
    """

    stream: int
    time: bytes
    data: bytes
    begins_line: bool = True
    ends_line: bool = True

    @property
    def size(self) -> int:
        """Bytes that the engine needs for it, or a few more: what LOG_BYTES is counted in."""
        line = self.begins_line and self.data.endswith(b"\n")
        return len(self.data) + (_LINE_OVERHEAD if line else _PIECE_OVERHEAD)


_LINE_OVERHEAD = 32
_PIECE_OVERHEAD = 128
"""The driver `local` of Docker 20.10 writes 29 bytes at most beside a line, 102 beside a piece."""


class Engine(Interface):
    """A container engine. Every call has a deadline of its own.

    All methods raise EngineUnavailableError, EngineTimeoutError (the outcome is unknown: read
    again) and EngineError, those of one container but `remove` ContainerGoneError; further errors
    are named with each.
    """

    async def info(self) -> EngineInfo:
        """Describe the engine; also the way to ask whether it answers."""
        ...

    async def create(self, spec: ContainerSpec) -> str:
        """Create a container and return its id.

        Raises:
            ImageMissingError: The image is not on the host.
            ImageCannotRunError: No container can be made of it.
            ContainerExistsError: The name is taken.
        """
        ...

    async def start(self, container: str) -> Container:
        """Start a created or ended container and describe it; one that runs is only described.

        The container stays behind on failure.

        Raises:
            PortTakenError: Another process has one of its ports.
            ImageCannotRunError: Its program cannot be started.
        """
        ...

    async def inspect(self, container: str) -> Container:
        """Describe one container by id or name."""
        ...

    async def list(self, agent_id: str) -> list[Container]:
        """Describe all containers that carry the label of this agent, running or not."""
        ...

    async def written_bytes(self, container: str) -> int:
        """Bytes that a container wrote: its own layer, and the volumes that its image declares.

        The engine walks all of its files, so it may take long.
        """
        ...

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal, `SIGTERM` or `SIGKILL`; nothing happens to one that does not run."""
        ...

    async def remove(self, container: str) -> None:
        """Remove a container by id or name, running or not; nothing happens when it is gone."""
        ...

    async def signal_process(self, process: Process, signal: str) -> None:
        """Send a signal to the process itself, for when the engine does not answer `kill`.

        Nothing happens when it is gone.

        Raises:
            EngineError: The agent may not.
        """
        ...

    async def wait_end(self, process: Process) -> None:
        """Return when the process is gone, without asking the engine."""
        ...

    async def has_bound(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> bool:
        """Return whether players can reach every port of a container, by its first process.

        False when the process is gone. Raises EngineError if the kernel does not report it.
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
        """Read stdout and stderr, all of it or the last `tail` pieces, in the order of recording.

        The log is the container's: a later run appends to that of earlier runs. With `follow`
        the answer lasts until the run ends; it is right for the first LOG_BYTES of a log alone:
        where the engine has begun a new file it repeats lines, or leaves a whole file out.
        Without, a response may restart once.

        Raises:
            EngineUnavailableError: It is read for longer than `longest` seconds. Files that the
                engine has dropped keep their room on its disk until then.
        """
        ...

    def archive(
        self, container: str, path: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read a file or folder as an uncompressed tar.

        The engine holds the container's lock while the body is unread: read at full speed.

        Raises:
            PathNotFoundError: It has no such file or folder.
        """
        ...

    def pull(
        self, image: str, credentials: Credentials | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[PullProgress]]:
        """Pull an image by digest; the iterator ends when the image is on the host.

        Raises:
            ImageNotFoundError: The registry has none, or does not give it out.
            ImageCannotRunError: No container can be made of it.
            RegistryUnavailableError: The registry cannot be reached.
            RegistryTimeoutError: It does not answer in time.
            DiskFullError: The engine's disk is full.
            InvalidArgumentError: The reference has no digest.
        """
        ...

    async def images(self) -> frozenset[str]:
        """References by digest of all images on the host."""
        ...

    async def image_sizes(self) -> Mapping[str, int]:
        """Bytes that each image on the host takes unpacked, by its references by digest.

        Layers that images share are counted with each.
        """
        ...

    async def remove_image(self, image: str) -> None:
        """Remove a reference by digest, and the image with the last; nothing when it is gone.

        Raises:
            ImageInUseError: A container, running or not, was made of it.
        """
        ...

    def events(self, agent_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Internal ids of sessions whose container changed; a hint, with gaps.

        Ends with EngineUnavailableError when the engine goes away.
        """
        ...

    async def close(self) -> None:
        """Release threads and connections."""
        ...
