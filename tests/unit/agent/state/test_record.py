import errno
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.domain.session import Deadline, Drain, Port, Process
from agent.state.record import Records, decode_session, encode_label, encode_session
from tests.support.agent.samples import a_session, a_spec, an_id
from tiltyard.contract import EndReason, Protocol, State


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[Records]:
    records = Records(tmp_path / "state")
    await records.open()
    yield records
    await records.close()


def test_record_round_trip() -> None:
    ended = a_session(
        state=State.EXITED,
        ports=(Port(7777, Protocol.UDP, 20001),),
        injected_env={"TILTYARD_HOST": "192.0.2.1"},
        process=Process(12, 34),
        deadline=Deadline(1.5, "boot", 2.5),
        exit_code=137,
        end_reason=EndReason.OOM,
    )
    for session in (a_session(), ended):
        assert decode_session(encode_session(session)) == session


@pytest.mark.parametrize("damaged", [b"", b"{", b"null", b"{}", b"\xff"])
def test_rejects_damaged_record(damaged: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's, ours and pydantic's are all one
        decode_session(damaged)


def test_label_has_neither_arguments_nor_environment() -> None:
    spec = a_spec(args=("--key=canary",), env={"SECRET": "canary"})
    label = encode_label(a_session(spec=spec))
    assert "canary" not in label
    assert decode_session(label.encode()).spec.identity == spec.identity


async def test_agent_starts_on_a_full_disk_and_empties_its_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Records(tmp_path / "state")
    agent_id = await first.open()
    (first.spool_dir / "left").touch()
    await first.close()
    real = os.mkdir

    def full(path: Path, mode: int = 0o777) -> None:
        if not Path(path).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, mode)

    monkeypatch.setattr(os, "mkdir", full)
    second = Records(tmp_path / "state")
    assert await second.open() == agent_id
    assert list(second.spool_dir.iterdir()) == []
    await second.close()


async def test_two_agents_cannot_share_a_directory(records: Records, tmp_path: Path) -> None:
    other = Records(tmp_path / "state")
    with pytest.raises(RuntimeError, match="another agent"):
        await other.open()
    await other.close()


async def test_directories_are_private_except_the_public_one(records: Records) -> None:
    session = a_session(deadline=Deadline(1.25, "boot", 2.5), host="192.0.2.1")
    await records.create(session, Drain(1, True, Deadline(1.5, "boot", 2.75)))
    directory = records.directory(session.internal_id)
    public = records.public_dir(session.internal_id)
    modes = {
        path: stat.S_IMODE(path.stat().st_mode)
        for path in (directory.parent, directory, directory / "record.json", public)
    }
    assert list(modes.values()) == [0o700, 0o700, 0o600, 0o755]
    assert stat.S_IMODE((public / "session.json").stat().st_mode) == 0o644
    assert json.loads((public / "session.json").read_text()) == {
        "format": 1,
        "id": "match/1 ü",
        "host": "192.0.2.1",
        "ports": [],
        "labels": {"mode": "duel"},
        "external_id": "x-1",
        "expire_time": 1250,
        "draining": True,
        "drain_time": 1500,
        "standby": False,
        "request": None,
    }


async def test_load_reports_unreadable_directories(records: Records) -> None:
    young, old = a_session(create_time=2.0), a_session(create_time=1.0)
    for session in (young, old):
        await records.create(session, Drain())
    broken = an_id()
    (records.directory(broken)).mkdir()
    (records.directory(broken) / "record.json").write_text("{")
    assert await records.load() == ([old, young], [broken])
    await records.delete(young.internal_id)
    await records.delete(young.internal_id)
    assert await records.load() == ([old], [broken])


async def test_temporary_files_of_a_killed_agent_are_removed(records: Records) -> None:
    session = a_session()
    await records.create(session, Drain())
    folder = records.directory(session.internal_id)
    unfinished = [folder / ".log.new", folder / ".record.json.new", folder / "public" / ".x.new"]
    for path in unfinished:
        path.write_bytes(b"half of it")
    assert await records.load() == ([session], [])
    assert not [path for path in unfinished if path.exists()]
    assert (folder / "record.json").exists()


async def test_reads_in_progress_are_tracked(records: Records) -> None:
    with records.kept("one"):
        with records.kept("one"):
            assert records.is_read("one")
        assert records.is_read("one")
    assert not records.is_read("one")
