"""This agent reads the state of released agents, and what `writing` writes today.

`formats/<n>` is the state directory of an agent of format n, with sessions that are running,
restarting, ended, claimed, and marked to stop while the disk was full; and the label of the first
one's container. These files are never rewritten. State of a newer agent or another user is neither
misread nor lost.
"""

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent.domain.containers.engine import container_name
from agent.domain.errors import SessionStoppedError
from agent.domain.sessions.session import Claim, Deadline, Drain
from agent.rpc.identity import FILE, Identity
from agent.rpc.signing import check
from agent.state.drain import DrainOrder
from agent.state.encoding import SESSIONS
from agent.state.record import Records
from agent.state.state_format import FORMAT, NewerStateError
from tests.agent.test_doctor import run
from tests.agent.writing import (
    BURIED,
    CLAIMED,
    ENDED,
    MARKED,
    RESTARTING,
    RUNNING,
    TAKEN,
    WRITTEN,
    write,
)
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import an_agent, until_sealed
from tests.support.agent.samples import a_container_spec, a_spec
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tiltyard.contract import EndReason, State
from tiltyard.runtime.settings import EXIT_CONFIG

FORMATS = Path(__file__).with_name("formats")
RELEASED = sorted(path.name for path in FORMATS.iterdir())


@pytest.fixture(params=[*RELEASED, "today"])
async def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the state of an agent of one format."""
    folder = tmp_path / "host"
    if request.param == "today":
        await write(folder)
    else:
        await asyncio.to_thread(shutil.copytree, FORMATS / request.param, folder)
    return folder


def _kinds(folder: Path) -> set[str]:
    """Return relative paths of files, with session ids replaced by <id>."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", path) for path in paths}


async def test_every_kind_of_file_has_an_example(tmp_path: Path) -> None:
    await write(tmp_path)
    made = await asyncio.to_thread(_kinds, tmp_path)
    kept = await asyncio.to_thread(_kinds, FORMATS / RELEASED[-1])
    assert made - kept == {"state/lock"}
    assert kept <= made


async def test_host_keeps_its_identity(written: Path) -> None:
    identity = await asyncio.to_thread(Identity.read, written / "state" / FILE)
    assert identity is not None
    assert check(identity, WRITTEN) == "tiltyard://agent/host-1"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(WRITTEN)


def _record(written: Path, internal_id: str) -> Path:
    return written / "state" / "sessions" / internal_id / "record.json"


def _kept(written: Any, read: Any) -> bool:
    """Return whether all written fields were read; additional ones are allowed."""
    if isinstance(written, dict):
        return all(key in read and _kept(value, read[key]) for key, value in written.items())
    if isinstance(written, list):
        return len(written) == len(read) and all(map(_kept, written, read))
    return bool(written == read)


@pytest.mark.parametrize("internal_id", [RUNNING, RESTARTING, ENDED])
def test_records_keep_all_fields(written: Path, internal_id: str) -> None:
    data = _record(written, internal_id).read_bytes()
    assert _kept(json.loads(data), json.loads(SESSIONS.dump_json(SESSIONS.validate_json(data))))


def test_ignores_fields_of_a_newer_agent(written: Path) -> None:
    content = json.loads(_record(written, RESTARTING).read_bytes())
    known = SESSIONS.validate_json(json.dumps(content).encode())
    content |= {"a_newer_field": 1}
    content["spec"] |= {"a_newer_field": {"of": "the spec"}}
    assert SESSIONS.validate_json(json.dumps(content).encode()) == known


async def _put_back(written: Path, engine: FakeEngine) -> None:
    """Recreate the containers of the sessions as their agent left them."""
    agent_id = (written / "state" / "agent_id").read_text().strip()
    has_init = int((written / "state" / "format").read_text()) > 1
    label = (written / "label.json").read_text()
    for path in sorted((written / "state" / "sessions").glob("*/record.json")):
        session = SESSIONS.validate_json(path.read_bytes())
        engine.image_store.add(session.spec.image)
        spec = a_container_spec(
            internal_id=session.prepared or session.internal_id,
            prepared=bool(session.prepared),
            agent_id=agent_id,
            image=session.spec.image,
            ports=session.ports,
            record=label if session.internal_id == RUNNING else "",
            init=f"/init/{'0' * 64}" if has_init else "",
        )
        name = await engine.create(spec)
        await engine.rename(name, container_name(session.internal_id))
        engine.start_from_outside(name)
        if has_init:
            engine.hand(name)
            engine.execute(name)
        if session.internal_id in {RESTARTING, ENDED}:
            engine.end(name, 139)


async def test_f05_an_agent_goes_on_where_one_of_an_older_version_ended(
    written: Path, clock: FakeClock
) -> None:
    engine = FakeEngine(clock)
    await _put_back(written, engine)
    async with an_agent(written, engine, clock) as agent:
        drain = agent.reservations.drain.now
        assert drain == Drain(7, draining=True, deadline=drain.deadline)
        assert drain.deadline is not None
        assert drain.deadline.expire_time == 1_800_086_411.0

        running = agent.sessions.life(RUNNING)
        await running.wait_for(lambda now: now.process is not None)
        assert running.session.state == State.RUNNING
        assert running.session.ports[0].host == 20000
        assert agent.runtime.deadlines.next_due() == 1_000 + 3_600

        await clock.advance(2)
        assert (await agent.reached(RESTARTING, State.RUNNING)).session.restart_count == 2

        assert (await agent.reached(MARKED)).session.end_reason is EndReason.TTL

        claimed = await agent.reached(CLAIMED, State.RUNNING)
        assert claimed.session.spec.identity.session_id == "match/6 ü"
        assert claimed.session.claim == Claim('{"map":"ü"}')

        if agent.sessions.find(TAKEN) is not None:  # there are none of format 1
            taken = await agent.reached(TAKEN, State.RUNNING)
            assert taken.session.process is not None
            assert (agent.records.public_dir(taken.session) / "session.json").exists()

        ended = agent.sessions.life(ENDED).session
        assert ended.state == State.EXITED
        assert ended.end_reason == EndReason.STOPPED
        assert ended.log_sealed
        assert agent.records.log_path(ENDED).read_bytes() == b"one\ntwo\n"

        await agent.sessions.drains.order(DrainOrder(0, draining=False))
        with pytest.raises(SessionStoppedError):
            await agent.sessions.start(BURIED, a_spec())
        await until_sealed(agent, MARKED)
        await assert_survived(agent)


async def test_f05_a_session_is_rebuilt_from_a_label_of_an_older_version(
    written: Path, clock: FakeClock
) -> None:
    engine = FakeEngine(clock)
    await _put_back(written, engine)
    shutil.rmtree(_record(written, RUNNING).parent)
    (written / "state" / "drain.json").unlink()
    async with an_agent(written, engine, clock) as agent:
        life = await agent.reached(RUNNING, State.RUNNING)
        assert life.session.process == (await engine.inspect(container_name(RUNNING))).process
        assert life.session.spec.identity.session_id == "match/1 ü"
        assert life.session.deadline == Deadline(1_800_003_600.0, "boot-1", 4600.0)
        await assert_survived(agent)


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A state directory of a newer agent."""
    state = tmp_path / "state"
    shutil.copytree(FORMATS / "1" / "state", state)
    (state / "spool").mkdir(exist_ok=True)
    (state / "spool" / "artifact").touch()
    (state / "format").write_text(f"{FORMAT + 1}\n")
    return state


def _content(folder: Path) -> dict[Path, bytes]:
    kept = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {path: path.read_bytes() for path in kept}


async def test_agent_does_not_change_newer_state(newer: Path) -> None:
    before = _content(newer)
    records = Records(newer)
    with pytest.raises(
        NewerStateError, match=r"a newer version has run on .* sessions keep running"
    ):
        await records.open()
    await records.close()
    assert _content(newer) == before


def test_serve_and_doctor_report_a_newer_format(newer: Path) -> None:
    result = run(newer.parent, "serve")
    assert result.exit_code == EXIT_CONFIG, result.output
    assert f"it does not start: a newer version has run on {newer}" in result.stderr
    result = run(newer.parent, "doctor")
    assert re.search(
        r"^FAIL  state-format +a newer version has run on", result.stdout, re.MULTILINE
    )


@pytest.mark.parametrize("text", ["1\n", "", "x", None])
async def test_start_writes_state_format(tmp_path: Path, text: str | None) -> None:
    shutil.copytree(FORMATS / "1" / "state", tmp_path / "state")
    path = tmp_path / "state" / "format"
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    records = Records(tmp_path / "state")
    await records.open()
    assert path.read_text() == f"{FORMAT}\n"
    sessions, damaged = await records.load()
    assert RUNNING in {session.internal_id for session in sessions}
    assert damaged == []
    await records.close()


@pytest.mark.root
@pytest.mark.parametrize(
    ("user", "name"),
    [
        (65534, "nobody"),
        (65533, "the user 65533"),
    ],
)
def test_does_not_start_in_folder_of_another_user(tmp_path: Path, user: int, name: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, user, user)
    refused = run(tmp_path, "serve")
    assert refused.exit_code == EXIT_CONFIG
    assert f"it does not start: {state} belongs to {name}: run as" in refused.stderr
    assert list(state.iterdir()) == []
