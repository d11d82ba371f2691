"""The programs that are mounted in containers as their init, in an agent's state directory."""

import asyncio
import errno
import stat
from pathlib import Path

import pytest

from agent.domain.sessions.session import Session
from agent.init.binary import init_program
from agent.state import init_programs
from tests.support.agent.hosts import until
from tests.support.agent.samples import IMAGE, a_container_spec, a_spec, an_id
from tests.support.agent.served import WholeAgent
from tests.support.fake_engine import FakeEngine

OTHER = "1" * 64  # Of an older agent
UNUSED = "2" * 64  # Of another one, without a container


def _agent(tmp_path: Path) -> WholeAgent:
    engine = FakeEngine()
    engine.image_store.add(IMAGE)
    return WholeAgent(tmp_path, "a", engine=engine)


async def _start(agent: WholeAgent) -> Session:
    await until(lambda: agent.daemon.sessions.reconciled)
    return await agent.sessions.start(an_id(), a_spec())


async def test_containers_get_the_init_of_their_agent(tmp_path: Path) -> None:
    program = await asyncio.to_thread(init_program)
    async with _agent(tmp_path) as agent:
        await _start(agent)
        [container] = agent.engine.all
    path = Path(container.spec.init)
    assert path == tmp_path / "a" / "init" / program.sha256
    assert await asyncio.to_thread(path.read_bytes) == program.data
    assert stat.S_IMODE((await asyncio.to_thread(path.stat)).st_mode) == 0o755
    assert container.spec.labels["io.tiltyard.init"] == program.sha256


@pytest.mark.parametrize("is_used", [False, True])
async def test_init_of_an_older_agent_stays_as_long_as_a_container_uses_it(
    tmp_path: Path, *, is_used: bool
) -> None:
    agent = _agent(tmp_path)
    async with agent:
        await until(lambda: agent.daemon.sessions.reconciled)
        agent_id = (tmp_path / "a" / "agent_id").read_text().strip()
    path = tmp_path / "a" / "init" / OTHER
    for program in (path, path.with_name(UNUSED)):
        await asyncio.to_thread(program.write_bytes, b"older")
    if is_used:
        left = a_container_spec(internal_id=an_id(), agent_id=agent_id, init=str(path))
        await agent.engine.create(left)
    async with agent:
        await _start(agent)
        await until(lambda: not path.with_name(UNUSED).exists())  # a thread removes it
    kept = {init_program().sha256} | ({OTHER} if is_used else set())
    assert {found.name for found in path.parent.iterdir()} == kept


async def test_agent_serves_while_its_disk_has_no_room_for_the_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first pass finds room."""
    install = init_programs.install
    failures = [OSError(errno.ENOSPC, "No space left on device")]

    def full(*args: object) -> Path:
        if failures:
            raise failures.pop()
        return install(*args)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(init_programs, "install", full)
    async with _agent(tmp_path) as agent:
        await _start(agent)
        [container] = agent.engine.all
        await until(Path(container.spec.init).exists)
    assert "cannot write the init of containers" in caplog.text
