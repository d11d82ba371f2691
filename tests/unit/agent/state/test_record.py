import asyncio
import errno
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import pytest

from agent.domain.errors import DiskFullError
from agent.domain.sessions.session import Claim, Deadline, Drain, Port, Process, Session
from agent.state import claims_journal
from agent.state.encoding import SESSIONS, encode_label
from agent.state.record import CLAIMS, Records
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
        program=("/game", "--map", "ü"),
    )
    for session in (a_session(), ended):
        assert SESSIONS.validate_json(SESSIONS.dump_json(session)) == session


@pytest.mark.parametrize("damaged", [b"", b"{", b"null", b"[]", b"{}", b"\xff"])
def test_rejects_damaged_record(damaged: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's, ours and pydantic's are all one
        SESSIONS.validate_json(damaged)


def test_label_has_neither_arguments_nor_environment() -> None:
    spec = a_spec(args=("--key=canary",), env={"SECRET": "canary"})
    label = encode_label(a_session(spec=spec, program=("/game", "--key=canary")))
    assert "canary" not in label
    assert SESSIONS.validate_json(label.encode()).spec.identity == spec.identity


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


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_channel_can_be_used_by_any_user_of_the_container(records: Records) -> None:
    session = a_session()
    umask = os.umask(0o077)
    try:
        await records.create(session, Drain())
    finally:
        os.umask(umask)
    channel = records.channel(session)
    assert channel == records.public_dir(session) / ".init"
    assert mode_of(channel) == 0o755
    assert sorted(path.name for path in channel.iterdir()) == ["report", "start"]
    assert (channel / "start").is_fifo()
    assert mode_of(channel / "start") == 0o644
    assert (channel / "report").is_fifo()
    assert mode_of(channel / "report") == 0o666


@pytest.mark.parametrize("lost", ["folder", "fifo"])
async def test_channel_that_a_power_cut_has_lost_is_made_again(
    records: Records, lost: str
) -> None:
    session = a_session()
    await records.create(session, Drain())
    channel = records.channel(session)
    kept = (channel / "report").stat().st_ino
    (channel / "start").unlink()
    if lost == "folder":
        (channel / "report").unlink()
        channel.rmdir()
    await records.repair_channel(session)
    assert (channel / "start").is_fifo()
    assert (channel / "report").is_fifo()
    assert lost == "folder" or (channel / "report").stat().st_ino == kept


async def test_channel_is_used_as_it_is_on_a_disk_that_cannot_be_written(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = a_session()
    await records.create(session, Drain())
    refuse = mock.Mock(side_effect=OSError(errno.EROFS, "Read-only file system"))
    monkeypatch.setattr(Path, "chmod", refuse)
    await records.repair_channel(session)
    assert refuse.called
    assert (records.channel(session) / "start").is_fifo()


async def test_directories_are_private_except_the_public_one(records: Records) -> None:
    session = a_session(deadline=Deadline(1.25, "boot", 2.5), host="192.0.2.1")
    await records.create(session, Drain(1, True, Deadline(1.5, "boot", 2.75)))
    directory = records.directory(session.internal_id)
    public = records.public_dir(session)
    assert mode_of(directory.parent) == 0o700
    assert mode_of(directory) == 0o700
    assert mode_of(directory / "record.json") == 0o600
    assert mode_of(public) == 0o755
    assert mode_of(public / "session.json") == 0o644
    assert json.loads((public / "session.json").read_text()) == {
        "format": 1,
        "id": "match/1 ü",
        "host": "192.0.2.1",
        "ports": [],
        "labels": {"mode": "duel"},
        "external_id": "x-1",
        "traceparent": None,
        "expire_time": 1250,
        "draining": True,
        "drain_time": 1500,
        "standby": False,
        "request": None,
    }


async def test_record_is_saved_in_a_directory_that_could_not_be_created(records: Records) -> None:
    session = a_session()
    await records.save(session)
    assert await records.load() == ([session], [])
    assert mode_of(records.directory(session.internal_id)) == 0o700


async def test_load_reports_unreadable_directories(records: Records) -> None:
    young = a_session(create_time=2.0)
    old = a_session(create_time=1.0)
    for session in (young, old):
        await records.create(session, Drain())
    broken = an_id()
    (records.directory(broken)).mkdir()
    (records.directory(broken) / "record.json").write_text("{")
    assert await records.load() == ([old, young], [broken])
    await records.delete(young)
    await records.delete(young)
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


async def claimed(records: Records, *, count: int = 1, since: float = 0) -> list[Session]:
    """Record sessions, the first created at `since`, then their claims at once."""
    sessions = [a_session(create_time=since + number) for number in range(count)]
    for session in sessions:
        await records.create(session, Drain())
    sessions = [session.with_changes(claim=Claim("null")) for session in sessions]
    await asyncio.gather(*map(records.save_claim, sessions))
    return sessions


async def test_claims_that_wait_are_flushed_together(records: Records) -> None:
    with mock.patch.object(os, "fdatasync", wraps=os.fdatasync) as flush:
        sessions = await claimed(records, count=50)
    assert flush.call_count <= 2
    for _ in range(2):  # a run of the agent keeps what it has read
        assert await records.load() == (sessions, [])


async def test_newer_record_counts_and_ends_its_line(records: Records) -> None:
    [session, kept] = await claimed(records, count=2)
    ended = session.to(State.RUNNING, at=2.0)
    await records.save(ended)
    assert await records.load() == ([ended, kept], [])
    await records.delete(session)
    assert await records.load() == ([kept], [])
    journal = (records.directory(kept.internal_id).parents[1] / CLAIMS).read_bytes()
    assert journal.strip() == SESSIONS.dump_json(kept)


@pytest.mark.part_alone
@pytest.mark.parametrize(
    "torn",
    [
        b"\n{",
        b"\0" * 600,
        b"\n\xff\n\n",
    ],
)
async def test_f49_torn_journal_keeps_what_was_flushed(records: Records, torn: bytes) -> None:
    [session] = await claimed(records)
    path = records.directory(session.internal_id).parents[1] / CLAIMS
    path.write_bytes(path.read_bytes() + torn)
    with mock.patch.object(claims_journal, "write", side_effect=OSError):  # a full disk
        assert await records.load() == ([session], [])
    [later] = await claimed(records, since=1)
    assert await records.load() == ([session, later], [])


@pytest.mark.part_alone
@pytest.mark.parametrize("call", ["fdopen", "fdatasync"])
async def test_f49_claim_that_cannot_be_written_leaves_the_standby(
    records: Records, call: str
) -> None:
    [kept] = await claimed(records)
    standby = a_session(create_time=5.0)
    await records.create(standby, Drain())
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    claim = standby.with_changes(claim=Claim("null"))
    failing = mock.patch.object(os, call, side_effect=error)
    with failing, pytest.raises(DiskFullError, match="No space"):
        await records.save_claim(claim)
    assert await records.load() == ([kept, standby], [])
    await records.save_claim(claim)
    assert await records.load() == ([kept, claim], [])


@mock.patch.object(claims_journal, "LEAST_REWRITTEN_BYTES", 0)
async def test_journal_is_rewritten_once_most_of_it_does_not_count(records: Records) -> None:
    [kept] = await claimed(records)
    path = records.directory(kept.internal_id).parents[1] / CLAIMS
    largest = 0
    for _ in range(20):
        [session] = await claimed(records)
        await records.delete(session)
        largest = max(largest, path.stat().st_size)
    assert largest < 5 * len(SESSIONS.dump_json(kept))
    assert await records.load() == ([kept], [])
