"""The folders of prepared containers, before and after a session has taken one."""

import stat
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import pytest

from agent.domain.prepared import template_for
from agent.domain.session import Drain, Session
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


async def test_record_of_a_session_that_has_taken_a_container_is_durable_at_once(
    records: Records,
) -> None:
    template = a_template()
    await records.prepare(template)
    session = a_session(prepared=template.prepared)
    flushed: list[Path] = []
    with (
        mock.patch("agent.state.record.flush_file", side_effect=flushed.append),
        mock.patch("agent.state.record.flush_folder", side_effect=flushed.append),
    ):
        await records.create_durably(session, Drain())
    directory = records.directory(session.internal_id)
    assert flushed == [directory / "record.json", directory, directory.parent]
    assert await records.load() == ([session], [])


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
