"""A container of the fake engine, with its log and files, and the registry of images."""

import asyncio
import hashlib
import io
import ipaddress
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from agent.domain import errors
from agent.domain.containers.engine import (
    LABEL_CONFIG,
    LONGEST_PIECE_BYTES,
    Container,
    ContainerSpec,
    ContainerStatus,
    InitState,
    LogPiece,
    Start,
)
from agent.domain.sessions.session import Process
from agent.domain.sessions.stopping import Member
from tests.support.agent.tars import Entry, folder, tar_of
from tests.support.fake_processes import FakeProcess
from tiltyard.contract import NetworkMode
from tiltyard.ends import Limit

_CHUNK = 64 * 1024


class EveryImage(set[str]):
    """A registry that has any image."""

    def __contains__(self, image: object) -> bool:
        return True

    def __or__(self, other: object) -> Any:
        return self


@dataclass(eq=False)
class FakeContainer:
    """A container of the fake engine. `starts`: what its init was handed over, run by run.

    `tree`: the live processes below its init, the program first. `waits_for_all`: its init
    outlives the program, which has ended with `program_code`. `own_init`: what has taken the place
    of its init.
    """

    spec: ContainerSpec
    id: str
    status: ContainerStatus = ContainerStatus.CREATED
    process: Process | None = None
    init: InitState = InitState.UNKNOWN
    starts: list[Start] = field(default_factory=list)
    exit_code: int | None = None
    oom_killed: bool = False
    end_time: float | None = None
    error: str = ""
    removed: bool = False
    bound: bool = False
    renamed: str = ""
    config: str = ""
    log: list[LogPiece] = field(default_factory=list)
    log_breaks: list[tuple[int, errors.AgentError]] = field(default_factory=list)
    unreadable: range = range(0)
    dropped: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    written: int = 0
    relay_seconds: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    tree: list[FakeProcess] = field(default_factory=list)
    waits_for_all: bool = False
    program_code: int | None = None
    stop_signal: str = ""
    own_init: FakeProcess | None = None
    reported_limits: tuple[Limit, ...] = ()

    @property
    def members(self) -> list[Member]:
        """The processes of the program, with a first process that is none of our inits at work."""
        found = [each.member for each in self.tree]
        if self.own_init is not None:
            found.append(self.own_init.member)
        elif self.process is not None and self.init is not InitState.RUNNING:
            found.append(Member(self.process, 0, "init"))
        return found

    def end_tree(self) -> None:
        """End all processes below the init."""
        for each in self.tree:
            each.ended.set()
        self.tree.clear()
        self.own_init = None
        self.waits_for_all = False
        self.program_code = None

    @property
    def name(self) -> str:
        return self.renamed or self.spec.name

    @property
    def labels(self) -> dict[str, str]:
        return self.spec.labels | ({LABEL_CONFIG: self.config} if self.config else {})

    def bind(self) -> None:
        """Bind all ports."""
        self.bound = True

    def put_file(self, path: str, data: bytes) -> None:
        self.files[path] = data

    def poke(self) -> None:
        """Wake the readers of the log."""
        self.changed.set()
        self.changed = asyncio.Event()

    def write_log(self, data: bytes, numbers: Iterator[int], now: float) -> None:
        """Write lines, each with a later time than the one before; the last may be incomplete."""
        for line in io.BytesIO(data):
            seconds, nanoseconds = divmod(int(now * 10**9) + next(numbers), 10**9)
            begin = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            time = f"{begin}.{nanoseconds:09d}Z".encode()
            starts = range(0, len(line), LONGEST_PIECE_BYTES)
            pieces = [line[start : start + LONGEST_PIECE_BYTES] for start in starts]
            self.log += [
                LogPiece(1, time, piece, piece is pieces[0], piece is pieces[-1])
                for piece in pieces
            ]
        self.poke()

    def drop_log(self, pieces: int) -> None:
        """Drop the oldest parts of the log."""
        del self.log[:pieces]
        self.dropped += pieces

    def break_log(self, pieces: int, error: errors.AgentError, *, times: int = 1) -> None:
        """Make the next log responses fail after this number of parts."""
        self.log_breaks += [(pieces, error)] * times

    async def read_log(
        self, *, follow: bool, tail: int | None, check: Callable[[], None]
    ) -> AsyncGenerator[Sequence[LogPiece]]:
        """Yield the pieces of the log; `check` is called after each wait and may raise."""
        run = self.process
        begin = 0 if tail is None else max(0, len(self.log) - tail)
        next_piece = self.dropped + begin
        left, error = self.log_breaks.pop(0) if self.log_breaks else (0, None)
        while True:
            if error is not None and (left == 0 or next_piece >= self.dropped + len(self.log)):
                raise error
            left -= 1
            while next_piece >= self.dropped + len(self.log):
                if not follow or self.process != run or self.removed:
                    return
                await self.changed.wait()
                check()
            next_piece = max(next_piece, self.dropped)
            if tail is not None or next_piece not in self.unreadable:
                yield [self.log[next_piece - self.dropped]]
            next_piece += 1

    def described(self) -> Container:
        process = self.process if self.status is ContainerStatus.RUNNING else None
        return Container(
            container=self.id,
            name=self.name,
            status=self.status,
            labels=self.labels,
            process=process,
            init=self.init if process else InitState.UNKNOWN,
            exit_code=self.exit_code,
            oom_killed=self.oom_killed,
            end_time=self.end_time,
            error=self.error,
            address=self.address,
            stop_signal=self.stop_signal,
        )

    @property
    def address(self) -> str:
        """A new address for each run, as on a bridge network."""
        if self.process is None or self.spec.network_mode is NetworkMode.HOST:
            return ""
        return str(ipaddress.IPv4Address("172.17.0.0") + self.process.pid % 65536)


def config_digest(spec: ContainerSpec, version: int) -> str:
    """What a container's creation fixes, by the fields of its spec; `version`: of the rest."""
    ports = tuple(replace(port, host=0) for port in spec.ports)
    common = replace(spec, internal_id="", record="", public_dir="", ports=ports, prepared=False)
    return hashlib.sha256(f"{version} {common}".encode()).hexdigest()


def wait_status(exit_code: int) -> int:
    """The status of wait(2): of a signal if the exit code is one."""
    return exit_code - 128 if exit_code > 128 else exit_code << 8


def packed(files: dict[str, bytes], path: str) -> bytes:
    """Pack everything below `path`, folders before their content, as Docker does."""
    wanted = PurePosixPath("/") / path
    inside = {p: data for p, data in files.items() if PurePosixPath(p).is_relative_to(wanted)}
    if not inside:
        raise errors.PathNotFoundError(path)
    folders = {parent for p in inside for parent in PurePosixPath(p).parents}
    entries = []
    for place in sorted(folders | set(map(PurePosixPath, inside))):
        if place.is_relative_to(wanted):
            # Names begin with a slash for the whole container, else with the last component.
            name = bytes((wanted.name or "/") / place.relative_to(wanted))
            content = inside.get(str(place), b"")
            entries.append(folder(name) if place in folders else Entry(name, content=content))
    return tar_of(entries)


async def chunks_of(data: bytes) -> AsyncGenerator[bytes]:
    """An archive as the engine sends it."""
    for begin in range(0, len(data), _CHUNK):
        yield data[begin : begin + _CHUNK]
        await asyncio.sleep(0)
