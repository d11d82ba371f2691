"""What a contract test needs beside the engine: things done from outside, on either kind of it."""

import asyncio
import contextlib
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker

from agent.docker.engine import DockerEngine
from agent.domain.containers.engine import (
    LABEL_PREPARED,
    LABEL_SESSION,
    Container,
    ContainerSpec,
    ContainerStatus,
    Start,
)
from agent.domain.sessions.session import Port, Process
from agent.init import binary
from agent.init.channel import FOLDER, make_channel
from tests.contract.images import PAYLOAD, REFUSED, SAVE
from tests.support.agent.samples import a_container_spec
from tests.support.fake_engine import FakeEngine
from tests.support.harness import free_port
from tiltyard.contract import Protocol, Resources

MEBIBYTE = 2**20
EXIT_CODE = 3  # Of a program that is asked to end


@dataclass(frozen=True)
class Images:
    """References by digest; `absent` is only in the registry, `unknown` nowhere.

    The entry point of all is /program, except that `bare` has none. Only `command` has a command.
    """

    runs: str
    no_user: str
    bare: str
    command: str
    absent: str

    @property
    def unknown(self) -> str:
        return f"{self.runs.partition('@')[0]}@sha256:{'0' * 64}"


@dataclass
class FakeStage:
    """The fake engine, and what is done to it from outside."""

    folder: Path
    engine: FakeEngine = field(default_factory=FakeEngine)
    images: Images = Images(
        runs=f"registry.test/runs@sha256:{'1' * 64}",
        no_user=f"registry.test/cannot@sha256:{'2' * 64}",
        bare=f"registry.test/bare@sha256:{'4' * 64}",
        command=f"registry.test/command@sha256:{'5' * 64}",
        absent=f"registry.test/absent@sha256:{'3' * 64}",
    )
    agent_id: str = "agent-1"
    init: Path = Path("/nonexistent/init") / ("0" * 64)

    def __post_init__(self) -> None:
        self.engine.binds_at_once = False  # nor does the program on Docker
        images = self.images
        for image in (images.runs, images.no_user, images.bare, images.command):
            self.engine.image_store.add(image)
            self.engine.programs[image] = (("/program",), ())
        self.engine.programs[images.bare] = ((), ())
        self.engine.programs[images.command] = (("/program",), ("silent",))
        for program, (cause, exit_code) in REFUSED.items():
            self.engine.cannot_execute[program] = (f"{program}: {cause}", exit_code)
        self.engine.cannot_start.add(self.images.no_user)
        self.engine.image_store.registry.add(self.images.absent)

    async def end(self, container: Container) -> None:
        """Make the program end with EXIT_CODE."""
        self.engine.end(container.container, EXIT_CODE)

    async def say(self, container: Container) -> None:
        """Make the program write PAYLOAD."""
        self.engine.write_log(container.container, PAYLOAD)

    async def eat(self, container: Container) -> None:
        """Make the program take more memory than it may."""
        self.engine.end(container.container, 137, oom=True)

    async def ready(self, container: Container, runs: int = 1) -> None:
        """Return when the program has written `ready` in `runs` runs of its container."""
        self.engine.write_log(container.container, b"ready\n")

    async def executed(self, container: Container) -> tuple[list[str], dict[str, str]]:
        """The arguments and the variables of the program that runs."""
        [held] = [each for each in self.engine.all if each.id == container.container]
        return list(held.starts[-1].program), dict(held.starts[-1].env)

    async def restart(self, container: Container) -> None:
        """Restart a container as another user of the engine does."""
        self.engine.start_from_outside(container.container)

    async def write_file(self, container: Container, size: int) -> None:
        self.engine.find(container.container).written = size

    @contextlib.contextmanager
    def occupied(self, protocol: Protocol) -> Iterator[int]:
        self.engine.ports.occupy(protocol.value, 20_000)
        yield 20_000
        self.engine.ports.vacate(protocol.value, 20_000)


@dataclass
class DockerStage:
    """The same with the machine's engine, by signals to the programs in its containers."""

    folder: Path
    engine: DockerEngine
    images: Images
    socket: Path
    agent_id: str = field(default_factory=lambda: f"contract-{uuid.uuid4().hex}")
    init: Path = binary.PATH

    async def end(self, container: Container) -> None:
        _signal(container.process, signal.SIGUSR1)

    async def say(self, container: Container) -> None:
        _signal(container.process, signal.SIGUSR2)

    async def eat(self, container: Container) -> None:
        _signal(container.process, signal.SIGHUP)

    async def ready(self, container: Container, runs: int = 1) -> None:
        # Not `since` its start: the engine notes that a moment after the program's first line.
        async with self.engine.logs(container.container, follow=True) as answer:
            seen = b""
            async for pieces in answer:
                seen += b"".join(piece.data for piece in pieces)
                if seen.count(b"ready\n") == runs:
                    return
        raise AssertionError(f"it ended with {seen!r}")

    async def executed(self, container: Container) -> tuple[list[str], dict[str, str]]:
        assert container.process is not None
        return await asyncio.to_thread(_executed_by, container.process.pid)

    async def restart(self, container: Container) -> None:
        await asyncio.to_thread(_restart, self.socket, container.container)

    async def write_file(self, container: Container, size: int) -> None:
        assert container.process is not None
        path = Path(f"/proc/{container.process.pid}/root/written")
        await asyncio.to_thread(path.write_bytes, os.urandom(size))

    @contextlib.contextmanager
    def occupied(self, protocol: Protocol) -> Iterator[int]:
        kind = socket.SOCK_STREAM if protocol is Protocol.TCP else socket.SOCK_DGRAM
        with socket.socket(socket.AF_INET, kind) as other:
            if protocol is Protocol.TCP:  # as free_port() looked
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", free_port()))
            if protocol is Protocol.TCP:
                other.listen()
            yield other.getsockname()[1]


def _executed_by(init: int) -> tuple[list[str], dict[str, str]]:
    """The arguments and the variables of the only child of an init."""
    process = Path("/proc")
    child = process / Path(f"/proc/{init}/task/{init}/children").read_text().strip()
    arguments = (child / "cmdline").read_text().split("\0")[:-1]
    variables = (child / "environ").read_text().split("\0")[:-1]
    return arguments, dict(variable.split("=", 1) for variable in variables)


def _restart(socket: Path, container: str) -> None:
    with contextlib.closing(docker.DockerClient(f"unix://{socket}", timeout=60)) as client:
        client.containers.get(container).restart(timeout=10)


def _signal(process: Process | None, number: signal.Signals) -> None:
    """Signal the first process of one of our containers, which forwards it to the program."""
    assert process is not None
    os.kill(process.pid, number)


Stage = FakeStage | DockerStage


async def spec(stage: Stage, **changes: object) -> ContainerSpec:
    """A container of this stage's agent, with a folder and a channel of its own."""
    internal_id = uuid.uuid4().hex
    public_dir = stage.folder / internal_id
    await asyncio.to_thread(_make_folders, public_dir)
    plain = a_container_spec(
        internal_id=internal_id,
        agent_id=stage.agent_id,
        image=stage.images.runs,
        init=str(stage.init),
        reservation=Resources(10**7, 16 * MEBIBYTE),
        limits=Resources(10**9, 32 * MEBIBYTE),
        public_dir=str(public_dir),
        record='{"format": 1}',
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # names are checked


def _make_folders(public_dir: Path) -> None:
    public_dir.mkdir()
    make_channel(public_dir / FOLDER)


def channel_of(stage: Stage, container: Container) -> Path:
    """The channel to the init of a container that was made by `spec`."""
    labels = container.labels
    return stage.folder / labels.get(LABEL_PREPARED, labels.get(LABEL_SESSION, "")) / FOLDER


async def created(stage: Stage, **changes: object) -> Container:
    """A container that has never run."""
    container = await stage.engine.create(await spec(stage, **changes))
    if isinstance(stage.engine, FakeEngine):
        stage.engine.find(container).put_file("/data/save.json", SAVE)
    return await stage.engine.inspect(container)


async def start(stage: Stage, container: Container) -> Container:
    """Start a container, again if it has ended."""
    return await stage.engine.start(container.container, channel_of(stage, container))


async def waiting(stage: Stage, **changes: object) -> Container:
    """A container whose init waits."""
    return await start(stage, await created(stage, **changes))


async def hand_over(stage: Stage, container: Container, *args: str, **more: Any) -> None:
    """Make a container that waits execute a program, by default that of the images."""
    program = (more.pop("program", "/program"), *args)
    message = Start(program, more.pop("env", {}), **more)
    await stage.engine.hand_over(container, channel_of(stage, container), message)


async def running(stage: Stage, *args: str, **changes: object) -> Container:
    """A container whose program has come up."""
    container = await waiting(stage, **changes)
    if isinstance(stage.engine, FakeEngine) and "ignore-sigterm" in args:
        stage.engine.ignores_sigterm.add(container.name)
    await hand_over(stage, container, *args)
    found = await stage.engine.inspect(container.container)
    await stage.ready(found)
    return found


async def ended(stage: Stage, container: Container) -> Container:
    """The container once its process is gone and the engine has seen so."""
    assert container.process is not None
    await stage.engine.wait_end(container.process)
    found = await stage.engine.inspect(container.container)
    while found.status is ContainerStatus.RUNNING:
        found = await stage.engine.inspect(container.container)
    return found


async def stopped(stage: Stage, container: Container) -> Container:
    """The container after the end of its program."""
    await stage.end(container)
    return await ended(stage, container)


async def log_of(stage: Stage, container: Container, **options: object) -> bytes:
    async with stage.engine.logs(container.container, **options) as answer:  # type: ignore[arg-type]  # names are checked
        return b"".join([piece.data async for pieces in answer for piece in pieces])


async def cleared(stage: Stage) -> AsyncIterator[Stage]:
    """The stage, and nothing of it afterwards."""
    try:
        yield stage
    finally:
        for container in await stage.engine.list(stage.agent_id):
            await stage.engine.remove(container.container)
        left = await stage.engine.list(stage.agent_id)
        await stage.engine.close()
    assert left == []


def port(protocol: Protocol, host: int) -> Port:
    return Port(container=7777, protocol=protocol, host=host)
