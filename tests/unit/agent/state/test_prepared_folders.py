"""The folders of prepared containers, before and after a session has taken one."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import pytest

from agent.domain.errors import DiskFullError
from agent.domain.kept.prepared import template_for
from agent.domain.sessions.session import Drain, Session
from agent.state.record import Records
from tests.support.agent.samples import a_session, a_spec, an_id


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[Records]:
    records = Records(tmp_path / "state")
    await records.open()
    yield records
    await records.close()


def a_template() -> Session:
    return template_for(an_id(), a_spec(), 1.0)


async def test_prepared_container_has_a_folder_with_a_channel_and_no_record(
    records: Records,
) -> None:
    template = a_template()
    await records.prepare(template)
    public = records.public_dir(template)
    assert stat.S_IMODE(public.stat().st_mode) == 0o755
    assert [path.name for path in public.iterdir()] == [".init"]
    assert (records.channel(template) / "start").is_fifo()
    assert await records.prepared_ids() == [template.prepared]
    assert await records.load() == ([], [])
    await records.drop_prepared(template.prepared)
    assert await records.prepared_ids() == []


async def test_session_uses_and_deletes_the_folder_of_the_container_it_has_taken(
    records: Records,
) -> None:
    template = a_template()
    other = a_template()
    for each in (template, other):
        await records.prepare(each)
    session = a_session(prepared=template.prepared)
    await records.create(session, Drain())
    assert records.public_dir(session) == records.public_dir(template)
    assert (records.public_dir(template) / "session.json").exists()
    assert [path.name for path in records.directory(session.internal_id).iterdir()] == [
        "record.json"
    ]
    assert await records.load() == ([session], [])
    await records.delete(session)
    assert await records.load() == ([], [])
    assert await records.prepared_ids() == [other.prepared]


async def a_start(records: Records) -> Session:
    """Record a session in a prepared container."""
    template = a_template()
    await records.prepare(template)
    session = a_session(prepared=template.prepared)
    await records.create_durably(session, Drain())
    return session


async def test_record_of_a_session_that_has_taken_a_container_is_durable_by_one_flush(
    records: Records,
) -> None:
    with mock.patch("agent.state.record.flush_folder") as of_folder:
        template = a_template()
        await records.prepare(template)
    prepared = records.public_dir(template).parents[1]
    assert of_folder.call_args_list == [mock.call(prepared)]
    session = a_session(prepared=template.prepared)
    with (
        mock.patch.object(os, "fsync") as of_names,
        mock.patch.object(os, "fdatasync", wraps=os.fdatasync) as of_data,
    ):
        await records.create_durably(session, Drain())
    assert of_data.call_count == 1
    assert not of_names.called
    assert records.directory(session.internal_id).is_dir()
    for _ in range(2):  # a run of the agent keeps what it has read
        assert await records.load() == ([session], [])


async def test_start_survives_the_loss_of_its_directory(records: Records) -> None:
    session = await a_start(records)
    records.directory(session.internal_id).rmdir()
    assert await records.load() == ([session], [])
    assert records.directory(session.internal_id).is_dir()


async def test_first_change_of_a_start_makes_its_directory_durable(records: Records) -> None:
    session = await a_start(records)
    directory = records.directory(session.internal_id)
    for parents in ([directory.parent], []):
        with mock.patch("agent.state.record.flush_folder") as flush:
            await records.save(session.with_changes(ready_time=5.0))
        assert [call.args[0] for call in flush.call_args_list] == parents


async def test_record_counts_instead_of_the_line_of_its_start(records: Records) -> None:
    session = await a_start(records)
    changed = session.with_changes(ready_time=5.0)
    await records.save(changed)
    assert await records.load() == ([changed], [])


async def test_damaged_record_is_not_replaced_by_the_older_line_of_its_start(
    records: Records,
) -> None:
    session = await a_start(records)
    await records.save(session.with_changes(ready_time=5.0))
    (records.directory(session.internal_id) / "record.json").write_bytes(b"damaged")
    assert await records.load() == ([], [session.internal_id])


async def test_deleted_session_does_not_return_by_the_line_of_its_start(records: Records) -> None:
    session = await a_start(records)
    await records.delete(session)
    assert await records.load() == ([], [])


async def test_directory_is_deleted_after_the_folder_by_which_its_line_counts(
    records: Records,
) -> None:
    session = await a_start(records)
    with mock.patch("agent.state.record.shutil.rmtree") as rmtree:
        await records.delete(session)
    prepared = records.public_dir(session).parent
    directory = records.directory(session.internal_id)
    assert [call.args[0] for call in rmtree.call_args_list] == [prepared, directory]


@pytest.mark.parametrize("part", ["_create_directory", "save_claim"])
async def test_start_without_a_part_of_its_record_fails_after_the_other(
    records: Records, part: str
) -> None:
    template = a_template()
    await records.prepare(template)
    session = a_session(prepared=template.prepared)
    failing = mock.patch.object(Records, part, side_effect=DiskFullError("it", "no space left"))
    with failing, pytest.raises(DiskFullError):
        await records.create_durably(session, Drain())
    await records.delete(session)
    assert await records.load() == ([], [])


async def test_folders_of_a_prepared_container_that_a_power_cut_has_lost_are_made_again(
    records: Records,
) -> None:
    session = a_session(prepared=an_id())
    await records.repair_channel(session)
    assert (records.channel(session) / "start").is_fifo()


async def test_temporary_files_of_prepared_containers_are_removed(records: Records) -> None:
    template = a_template()
    await records.prepare(template)
    unfinished = records.public_dir(template) / ".session.json.new"
    unfinished.write_bytes(b"half of it")
    await records.load()
    assert not unfinished.exists()
