"""Logs on a real Docker Engine whose files are small, so that it begins new ones all the time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

import docker
import pytest

from agent.clock import SystemClock
from agent.docker import container_config
from agent.docker.engine import DockerEngine
from agent.engine import ContainerSpec, LogPiece
from agent.errors import LogGone
from agent.logs import follower as log_follower
from agent.logs import reading as logs
from agent.logs.follower import MISSING
from agent.logs.sealed import DROPPED
from agent.sessions.record import Records
from agent.sessions.session import NetworkMode, Process, Resources, Session, State
from tests.agent.samples import a_session
from tests.demo_game import Image

pytestmark = [pytest.mark.docker, pytest.mark.registry]

FILE_BYTES = 2**20
"""With what is streamed live, what was read ahead must fit, 850 kB at most."""
CLOCK = SystemClock()
LINE = re.compile(rb"(\d{6,}) \S+ .*")


class Game:
    """A demo game in a container, as `Lifecycle` shows its session."""

    def __init__(self, engine: DockerEngine, session: Session) -> None:
        self.engine = engine
        self.session = session
        self._ended = asyncio.Event()

    async def settled_start(self) -> None:
        """It has started."""

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
        """Wait until it has ended and the engine has seen so."""
        await self.engine.wait_end(self.process)
        while (await self.engine.inspect(self.container)).process is not None:
            continue
        self.session = dataclasses.replace(self.session, state=State.EXITED, process=None)
        self._ended.set()

    async def log(self) -> list[LogPiece]:
        """All that the engine has."""
        async with self.engine.logs(self.container) as answer:
            return [piece async for pieces in answer for piece in pieces]

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
    """An engine that keeps a little, and followers who know."""
    config = {"max-size": str(FILE_BYTES), "max-file": "2", "compress": "false"}
    monkeypatch.setattr(container_config, "_LOG_CONFIG", {"Type": "local", "Config": config})
    monkeypatch.setattr(log_follower, "LIVE_BYTES", FILE_BYTES // 8)
    monkeypatch.setattr(logs, "STEP_SECONDS", 0.1)


@contextlib.asynccontextmanager
async def playing(
    engine: DockerEngine, image: Image, folder: Path, *args: str
) -> AsyncIterator[Game]:
    async with engine.pull(image.reference) as steps:
        async for _ in steps:
            pass
    session = a_session()
    container = await engine.create(
        ContainerSpec(
            internal_id=session.internal_id,
            agent_id="logs",
            image=image.reference,
            args=args,
            env={},
            network_mode=NetworkMode.BRIDGE,
            ports=(),
            bind_address="127.0.0.1",
            reservation=Resources(),
            limits=Resources(),
            public_dir=str(folder),
            record="{}",
        )
    )
    try:
        await engine.start(container)
        process = (await engine.inspect(container)).process
        yield Game(
            engine,
            dataclasses.replace(
                session, container=container, state=State.RUNNING, process=process
            ),
        )
    finally:
        await engine.remove(container)


def numbers(log: bytes) -> list[int]:
    """Those of lines that are whole; anything else is our own."""
    found = []
    for line in log.splitlines(keepends=True):
        whole = LINE.fullmatch(line.removesuffix(b"\n"))
        assert whole or line == MISSING, line
        found += [int(whole[1])] if whole else []
    return found


async def all_of(chunks: AsyncGenerator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


@pytest.mark.part_alone
@pytest.mark.usefixtures("small_files")
async def test_f32_each_line_once_and_in_order_while_the_engine_drops_files(
    engine: DockerEngine, demo_image: Image, tmp_path: Path
) -> None:
    game_args = ("--flood", "600000", "--lines-per-second", "0", "--exit-after", "6")
    async with playing(engine, demo_image, tmp_path, *game_args, "--stderr-too") as game:
        followers = [asyncio.create_task(all_of(game.followed())) for _ in range(3)]
        slow = game.followed()
        begin = await anext(slow)  # and nothing more until the game is over
        await game.end()
        # The two streams are put in order by the engine, as it reads them.
        last = max(int(piece.data.split()[0]) for piece in await game.log())
        for log in await asyncio.gather(*followers):
            told = numbers(log)
            for stream in (0, 1):
                half = [number for number in told if number % 2 == stream]
                assert half == list(range(2 - stream, last + 1, 2))
            assert MISSING not in log
        log = begin + await all_of(slow)
        assert log.count(MISSING) == 1
        told = numbers(log)
        assert len(set(told)) == len(told)
        assert max(told) == last


@pytest.mark.part_alone
@pytest.mark.usefixtures("small_files")
async def test_f31_a_stalled_follower_of_a_flood_holds_up_nobody(
    engine: DockerEngine, demo_image: Image, tmp_path: Path
) -> None:
    async with playing(engine, demo_image, tmp_path, "--flood", "0") as game:
        stalled = game.followed()
        await anext(stalled)
        before = (await game.log())[-1]
        while (await game.log())[0].time < before.time:
            continue  # the game goes on, and the engine has dropped what was the end
        await engine.kill(game.container, "SIGKILL")
        await game.end()
        await engine.remove(game.container)
        with pytest.raises(LogGone):
            await all_of(stalled)


@pytest.mark.part_alone
@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("what", ["one-line", "bytes"])
async def test_f31_a_flood_of_anything_is_followed_and_sealed(
    engine: DockerEngine, demo_image: Image, tmp_path: Path, what: str
) -> None:
    """One line that does not end, or every byte there is: zero, and what is no UTF-8."""
    records = Records(tmp_path / "state")
    game_args = ("--flood", "6000000", "--flood-with", what, "--exit-after", "1.2")
    async with playing(engine, demo_image, tmp_path, *game_args) as game:
        follower = asyncio.create_task(all_of(game.followed()))
        await game.end()
        log = await follower
        records.directory(game.session.internal_id).mkdir(parents=True)
        await logs.seal(engine, records, game.session, lambda _: asyncio.sleep(0))
        await records.close()
    sealed = records.log_path(game.session.internal_id).read_bytes()
    assert log.startswith(b"000001 ")
    assert log.endswith(b" exit 0\n")
    assert sealed.endswith(b" exit 0\n")
    pattern = b"x" * 512 if what == "one-line" else bytes(range(256)) * 2
    assert pattern in log
    assert pattern in sealed


async def test_a_hundred_followers_of_one_session_take_no_thread(
    engine: DockerEngine, demo_image: Image, tmp_path: Path
) -> None:
    async with playing(engine, demo_image, tmp_path, "--lines-per-second", "50") as game:
        followers = [game.followed() for _ in range(100)]
        begun = await asyncio.gather(*(anext(follower) for follower in followers))
        before = threading.active_count()
        more = await asyncio.gather(*(anext(follower) for follower in followers))
        assert threading.active_count() == before <= 40
        await engine.kill(game.container, "SIGTERM")
        await game.end()
        rest = await asyncio.gather(*map(all_of, followers))
    [log] = {b"".join(parts) for parts in zip(begun, more, rest, strict=True)}
    assert log.endswith(b"SIGTERM: saving\n")
    told = numbers(log)
    assert told == list(range(1, len(told) + 1))


@pytest.mark.root
@pytest.mark.parametrize("what", ["lines", "one-line", "bytes"])
async def test_a_log_is_counted_as_the_engine_counts_it(
    engine: DockerEngine, demo_image: Image, tmp_path: Path, docker_engine: Path, what: str
) -> None:
    """Never less: what it has dropped was more than what we keep, and the log says so."""
    game_args = ("--flood", "1000000", "--flood-with", what, "--exit-after", "0.5")
    async with playing(engine, demo_image, tmp_path, *game_args) as game:
        await game.end()
        counted = sum(piece.size for piece in await game.log())
        with contextlib.closing(docker.DockerClient(f"unix://{docker_engine}")) as client:
            root = Path(client.info()["DockerRootDir"])
        [file] = (root / "containers" / game.container / "local-logs").iterdir()
        assert file.stat().st_size <= counted <= file.stat().st_size * 1.05


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_log_that_is_too_long_is_sealed_with_a_line_that_says_so(
    engine: DockerEngine, demo_image: Image, tmp_path: Path
) -> None:
    """With the engine's real files: more than two of them are written."""
    records = Records(tmp_path / "state")
    game_args = ("--flood", "0", "--exit-after", "12")
    async with playing(engine, demo_image, tmp_path, *game_args) as game:
        await game.end()
        records.directory(game.session.internal_id).mkdir(parents=True)
        await logs.seal(engine, records, game.session, lambda _: asyncio.sleep(0))
        await records.close()
    with records.log_path(game.session.internal_id).open("rb") as sealed:
        assert sealed.readline().startswith(DROPPED.partition(b"%")[0])
        told = numbers(sealed.read())
        assert sealed.tell() <= 64 * 2**20
    assert told == list(range(told[0], told[-1] + 1))
    assert told[0] > 1
