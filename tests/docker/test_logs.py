"""Logs on a real Docker Engine with small files, which it rotates all the time."""

import asyncio
import contextlib
import dataclasses
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

import docker
import pytest

from agent.docker import container_config
from agent.docker.engine import DockerEngine
from agent.domain.containers.engine import LOG_BYTES, LogPiece, Start
from agent.domain.errors import EngineError, LogGoneError
from agent.domain.sessions.session import Process, Session
from agent.init import binary
from agent.init.channel import FOLDER, make_channel
from agent.kernel.clock import SystemHostClock
from agent.logs import follower as log_follower
from agent.logs import reading as logs
from agent.logs.follower import MISSING, TAIL_PIECES
from agent.logs.reading import UNREADABLE
from agent.logs.sealed import DROPPED
from agent.state.record import Records
from tests.demo_game import Image
from tests.docker.machine import a_machine
from tests.support.agent.samples import a_container_spec, a_session
from tiltyard.contract import State

FILE_BYTES = 2**20  # Must hold the live bytes and the read-ahead of up to 850 kB
STEP_BYTES = FILE_BYTES // 3  # A flood that the engine keeps completely, even for slow followers
CLOCK = SystemHostClock()
LINE = re.compile(rb"(\d{6,}) \S+ .*")
FLOOD_OVER = b" flood over\n"
ENDED = b" SIGTERM: saving\n"


class Game:
    """A demo game in a container, with the interface of `Life`."""

    def __init__(self, engine: DockerEngine, session: Session) -> None:
        self.engine = engine
        self.session = session
        self._ended = asyncio.Event()

    async def wait_started(self) -> None:
        """Return at once."""

    async def wait_for(self, reached: Callable[[Session], bool]) -> None:
        while not reached(self.session):
            await self._ended.wait()

    @property
    def container(self) -> str:
        return self.session.container

    @property
    def process(self) -> Process:
        assert self.session.process is not None
        return self.session.process

    async def end(self) -> None:
        """Wait for the end as the engine sees it."""
        await self.engine.wait_end(self.process)
        while (await self.engine.inspect(self.container)).is_running:
            continue
        self.session = dataclasses.replace(self.session, state=State.EXITED, process=None)
        self._ended.set()

    async def stop(self) -> None:
        """Stop the game and wait for its end."""
        await self.engine.kill(self.container, "SIGTERM")
        await self.end()

    async def flood(self) -> None:
        """Trigger another flood."""
        await self.engine.kill(self.container, "SIGUSR1")

    async def flooded(self) -> None:
        """Wait until the engine has the whole flood."""
        while not any(FLOOD_OVER in piece.data for piece in await self.log(TAIL_PIECES)):
            continue

    async def log(self, tail: int | None = None) -> list[LogPiece]:
        """The engine's log or its tail, retried since 26.1 may fail while it rotates files."""
        while True:
            try:
                async with self.engine.logs(self.container, tail=tail) as answer:
                    return [piece async for pieces in answer for piece in pieces]
            except EngineError as error:
                if "log message footer" not in error.cause:
                    raise

    def followed(self) -> AsyncGenerator[bytes]:
        nowhere = Records(Path("/nonexistent"))
        return logs.read(self.engine, nowhere, CLOCK, self, follow=True)


@pytest.fixture
async def engine(docker_engine: Path) -> AsyncIterator[DockerEngine]:
    made = DockerEngine(str(docker_engine))
    yield made
    await made.close()


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine with small log files, and followers with matching limits."""
    config = {"max-size": str(FILE_BYTES), "max-file": "2", "compress": "false"}
    monkeypatch.setattr(container_config, "_LOG_CONFIG", {"Type": "local", "Config": config})
    monkeypatch.setattr(log_follower, "LIVE_BYTES", FILE_BYTES // 8)
    monkeypatch.setattr(logs, "STEP_SECONDS", 0.1)


@pytest.fixture
async def image(engine: DockerEngine, demo_image: Image) -> str:
    async with engine.pull(demo_image.reference) as steps:
        async for _ in steps:
            pass
    return demo_image.reference


def _make_folders(public: Path) -> None:
    public.mkdir(mode=0o755)  # the game is not its owner
    make_channel(public / FOLDER)


@contextlib.asynccontextmanager
async def playing(
    engine: DockerEngine, image: str, folder: Path, *args: str
) -> AsyncIterator[Game]:
    session = a_session()
    public = folder / session.internal_id
    channel = public / FOLDER
    await asyncio.to_thread(_make_folders, public)
    container = await engine.create(
        a_container_spec(
            internal_id=session.internal_id,
            agent_id="logs",
            image=image,
            init=str(binary.PATH),
            public_dir=str(public),
        )
    )
    try:
        found = await engine.start(container, channel)
        await engine.hand_over(found, channel, Start(await engine.program(image, args), {}))
        process = found.process
        yield Game(
            engine,
            dataclasses.replace(
                session, container=container, state=State.RUNNING, process=process
            ),
        )
    finally:
        await engine.remove(container)


def numbers(log: bytes) -> list[int]:
    """The numbers of complete lines; other lines are markers of the agent."""
    found = []
    for line in log.splitlines(keepends=True):
        whole = LINE.fullmatch(line.removesuffix(b"\n"))
        assert whole or line == MISSING, line
        found += [int(whole[1])] if whole else []
    return found


async def all_of(chunks: AsyncGenerator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


class Reader:
    """A follower of a game that reads at full speed."""

    def __init__(self, game: Game) -> None:
        self._log = bytearray()
        self._game = game
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._read())
        self._task.add_done_callback(lambda _: self._more.set())

    async def until(self, words: bytes, times: int = 1) -> None:
        """Read until these words have come `count` times."""
        while self._log.count(words) < times:
            assert not self._task.done(), "the log has ended"
            self._more.clear()
            await self._more.wait()

    async def whole(self) -> bytes:
        """Read the log to its end."""
        await self._task
        return bytes(self._log)

    async def _read(self) -> None:
        async for chunk in self._game.followed():
            self._log += chunk
            self._more.set()


@pytest.mark.part_alone
@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize(
    "fast",
    [
        3,
        pytest.param(17, marks=[pytest.mark.slow, pytest.mark.thorough]),
    ],
)
async def test_f32_each_line_once_and_in_order_while_the_engine_drops_files(
    engine: DockerEngine, image: str, tmp_path: Path, fast: int
) -> None:
    flood = ("--flood", "1000000", "--flood-bytes", str(STEP_BYTES), "--flood-at-signal")
    game_args = (*flood, "--lines-per-second", "0", "--stderr-too")
    async with playing(engine, image, tmp_path, *game_args) as game:
        readers = [Reader(game) for _ in range(fast)]
        slow = {game.followed(): bytearray() for _ in range(3)}
        for follower, log in slow.items():
            log.extend(await anext(follower))
        stalled, *dawdling = slow
        for step in range(1, 3 * FILE_BYTES // STEP_BYTES):
            await game.flood()
            for reader in readers:
                await reader.until(FLOOD_OVER, step)
            for follower in dawdling:  # nothing more of the stalled one until the game is over
                slow[follower].extend(await anext(follower))
        await game.stop()
        # The engine orders the two streams as it reads them.
        last = max(int(piece.data.split()[0]) for piece in await game.log())
        for reader in readers:
            whole = await reader.whole()
            read_numbers = numbers(whole)
            for stream in (0, 1):
                half = [number for number in read_numbers if number % 2 == stream]
                assert half == list(range(2 - stream, last + 1, 2))
            assert MISSING not in whole
        for follower, log in slow.items():
            log.extend(await all_of(follower))
            read_numbers = numbers(bytes(log))
            assert len(set(read_numbers)) == len(read_numbers)
            assert max(read_numbers) == last
            assert MISSING in log or len(read_numbers) == last
        assert slow[stalled].count(MISSING) == 1


@pytest.mark.part_alone
@pytest.mark.usefixtures("small_files")
async def test_f31_a_stalled_follower_of_a_flood_holds_up_nobody(
    engine: DockerEngine, image: str, tmp_path: Path
) -> None:
    async with playing(engine, image, tmp_path, "--flood", "0") as game:
        stalled = game.followed()
        await anext(stalled)
        before = (await game.log())[-1]
        while (await game.log())[0].time < before.time:
            continue  # the game continues, and the engine has dropped that end
        await engine.kill(game.container, "SIGKILL")
        await game.end()
        await engine.remove(game.container)
        with pytest.raises(LogGoneError):
            await all_of(stalled)


@pytest.mark.part_alone
@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("what", ["one-line", "bytes"])
async def test_f31_a_flood_of_anything_is_followed_and_sealed(
    engine: DockerEngine, image: str, tmp_path: Path, what: str
) -> None:
    """An endless line, or arbitrary bytes with NUL and invalid UTF-8."""
    records = Records(tmp_path / "state")
    flood = ("--flood", "6000000", "--flood-bytes", "6000000", "--flood-with", what)
    async with playing(engine, image, tmp_path, *flood, "--flood-at-signal") as game:
        reader = Reader(game)
        await reader.until(b"\n")  # later its beginning may have been dropped
        await game.flood()
        await game.flooded()
        await game.stop()
        log = await reader.whole()
        records.directory(game.session.internal_id).mkdir(parents=True)
        await seal(engine, records, game)
        await records.close()
    sealed = records.log_path(game.session.internal_id).read_bytes()
    assert log.startswith(b"000001 ")
    assert log.endswith(ENDED)
    assert sealed.endswith(ENDED)
    pattern = b"x" * 512 if what == "one-line" else bytes(range(256)) * 2
    assert pattern in log
    assert pattern in sealed


async def test_a_hundred_followers_of_one_session_take_no_thread(
    engine: DockerEngine, image: str, tmp_path: Path
) -> None:
    async with playing(engine, image, tmp_path, "--lines-per-second", "50") as game:
        followers = [game.followed() for _ in range(100)]
        begun = await asyncio.gather(*(anext(follower) for follower in followers))
        before = threading.active_count()
        more = await asyncio.gather(*(anext(follower) for follower in followers))
        assert threading.active_count() <= before <= 40
        await game.stop()
        rest = await asyncio.gather(*map(all_of, followers))
    [log] = {b"".join(parts) for parts in zip(begun, more, rest, strict=True)}
    assert log.endswith(ENDED)
    read_numbers = numbers(log)
    assert read_numbers == list(range(1, len(read_numbers) + 1))


@pytest.mark.parametrize("what", ["lines", "one-line", "bytes"])
async def test_counts_log_bytes_like_the_engine(
    engine: DockerEngine, image: str, tmp_path: Path, docker_engine: Path, what: str
) -> None:
    """Never less, so that a log is cut with a marker if the engine has dropped data."""
    flood = ("--flood", "1000000", "--flood-bytes", "500000", "--flood-with", what)
    async with playing(engine, image, tmp_path, *flood) as game:
        await game.flooded()
        await game.stop()
        counted = sum(piece.size for piece in await game.log())
        with contextlib.closing(docker.DockerClient(f"unix://{docker_engine}")) as client:
            root = Path(client.info()["DockerRootDir"])
        [file] = (root / "containers" / game.container / "local-logs").iterdir()
        assert file.stat().st_size <= counted <= file.stat().st_size * 1.05


@pytest.mark.slow
async def test_seals_too_long_log_with_a_line_that_says_so(
    engine: DockerEngine, image: str, tmp_path: Path
) -> None:
    """The log has more than two of the engine's real files."""
    records = Records(tmp_path / "state")
    flood = ("--flood", "0", "--flood-bytes", str(2 * LOG_BYTES))
    async with playing(engine, image, tmp_path, *flood) as game:
        await game.flooded()
        await game.stop()
        records.directory(game.session.internal_id).mkdir(parents=True)
        await seal(engine, records, game)
        await records.close()
    with records.log_path(game.session.internal_id).open("rb") as sealed:
        assert sealed.readline().startswith(DROPPED.partition(b"%")[0])
        read_numbers = numbers(sealed.read())
        assert sealed.tell() <= 64 * 2**20
    assert read_numbers == list(range(read_numbers[0], read_numbers[-1] + 1))
    assert read_numbers[0] > 1


@pytest.mark.usefixtures("small_files")
async def test_a_log_with_a_damaged_file_is_not_sealed_as_complete(tmp_path: Path) -> None:
    """Before version 27 the engine fails to read it, later it skips a part. 20.10 may crash."""
    records = Records(tmp_path / "state")
    flood = ("--flood", "0", "--flood-bytes", str(FILE_BYTES * 3 // 2))
    with a_machine() as machine:
        engine = DockerEngine(str(machine.engine.socket))
        root = Path(machine.client.info()["DockerRootDir"], "containers")
        for name in ("container.log", "container.log.1"):
            async with playing(engine, machine.image, tmp_path, *flood) as game:
                await game.flooded()
                await game.stop()
                sealed = records.log_path(game.session.internal_id)
                sealed.parent.mkdir(parents=True)
                assert not await seal(engine, records, game)
                damage(root / game.container / "local-logs" / name)
                with pytest.raises(EngineError):
                    await seal(engine, records, game)
                assert await seal(engine, records, game, partly=True)
                assert sealed.read_bytes().splitlines()[-1].startswith(UNREADABLE[1:20])
        await engine.close()
    await records.close()


async def seal(
    engine: DockerEngine, records: Records, game: Game, *, partly: bool = False
) -> bool:
    """Seal a log, and return whether it is damaged."""
    _, damaged = await logs.seal(
        engine, records, game.session, lambda _: asyncio.sleep(0), partly=partly
    )
    return damaged


def damage(file: Path) -> None:
    """Overwrite several lines in the middle of a log file."""
    with file.open("r+b") as log:
        log.seek(file.stat().st_size // 2)
        log.write(b"\xff" * 4096)
