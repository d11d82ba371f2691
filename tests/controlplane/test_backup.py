"""Backups: whole, for their owner alone, and of one moment, whatever is written meanwhile."""

import errno
import json
import os
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from controlplane.backups import backup
from controlplane.backups.backup import back_up
from controlplane.backups.backup_file import PARTS, Manifest
from controlplane.cli.main import main
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.state_dir.lock import replacing, serving, using
from controlplane.storage.engine import database_copy
from controlplane.storage.engine.database_copy import NEWEST_SCHEMA, copy_database
from tests.controlplane.kept_states import NOW, a_state, files, rows


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return a_state(tmp_path / "state", "studio")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "there.backup"


def taken(config: Config, target: Path, *, replace: bool = False) -> Manifest:
    return back_up(config, target, NOW, replace=replace)


def command(config: Config, *arguments: str) -> Result:
    path = config.state_dir.with_suffix(".toml")
    path.write_text(f'state_dir = "{config.state_dir}"\n')
    name, *more = arguments
    return CliRunner().invoke(main, [name, "--config", str(path), *more])


def test_a_backup_is_an_archive_that_anybody_can_look_into(config: Config, target: Path) -> None:
    before = os.umask(0)
    try:
        taken(config, target)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        members = archive.getmembers()
        first = archive.extractfile(members[0])
        assert first is not None
        manifest = json.load(first)
    assert [member.name for member in members] == ["manifest.json", *PARTS]
    assert all(member.isreg() and member.mode == 0o600 for member in members)
    assert manifest["format"] == 1
    assert manifest["schema_number"] == NEWEST_SCHEMA
    assert (manifest["time"], manifest["environment"]) == ("2026-05-04T10:30:00Z", "production")
    assert [part["name"] for part in manifest["parts"]] == list(PARTS)
    assert [part["size"] for part in manifest["parts"]] == [m.size for m in members[1:]]


def test_the_database_in_a_backup_needs_no_log_and_is_changed_by_nobody(
    config: Config, target: Path, tmp_path: Path
) -> None:
    before = files(config.state_dir)
    taken(config, target)
    with tarfile.open(target) as archive:
        archive.extract("controlplane.db", tmp_path, filter="data")
    found = Config(state_dir=tmp_path)
    assert rows(found, "SELECT name FROM account") == [("studio",)]
    assert rows(found, "PRAGMA journal_mode") == [("delete",)]
    after = files(config.state_dir)
    for name in PARTS[1:]:
        assert after[name] == before[name]
    assert rows(config, "SELECT name FROM account") == [("studio",)]
    assert not [name for name in after if name.startswith("backup.draft/")]


def test_a_backup_is_of_one_moment_and_ends_whatever_is_written(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody commits after each page: a copy that begins anew at every commit would not end."""
    commits = 0

    def commit(*_: object) -> None:
        nonlocal commits
        commits += 1
        assert commits < 1000, "it begins anew"
        db.execute("INSERT INTO region(name) VALUES (?)", (f"r{commits}",))

    monkeypatch.setattr(database_copy, "_PORTION", 1)
    monkeypatch.setattr(database_copy, "_look_for_signals", commit)
    copy = Config(state_dir=tmp_path)
    with closing(sqlite3.connect(config.database, isolation_level=None)) as db:
        copy_database(config.database, copy.database)
    assert commits > 10
    assert rows(copy, "SELECT name FROM region") == []
    assert len(rows(config, "SELECT name FROM region")) == commits


def test_a_file_that_is_there_is_replaced_only_when_told(config: Config, target: Path) -> None:
    target.write_text("mine")
    with pytest.raises(StoreError, match="--force replaces it"):
        taken(config, target)
    assert target.read_text() == "mine"
    taken(config, target, replace=True)
    assert tarfile.is_tarfile(target)
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_disk_that_fails_leaves_what_was_there(
    config: Config, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.write_text("of yesterday")

    def fail(file: Any, *_: object) -> NoReturn:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "write_backup", fail)
    with pytest.raises(StoreError, match="No space left"):
        taken(config, target, replace=True)
    assert target.read_text() == "of yesterday"
    assert [path.name for path in target.parent.iterdir() if path.is_file()] == [target.name]


def test_what_a_killed_backup_left_is_gone_after_the_next(config: Config, target: Path) -> None:
    left = config.state_dir / "backup.draft" / "controlplane.db"
    left.parent.mkdir()
    left.write_text("half of it")
    taken(config, target)
    assert not list(left.parent.iterdir())


def test_a_folder_that_is_put_in_place_of_the_work_is_not_emptied(
    config: Config, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user whose state it is may do so while root makes a backup."""
    theirs = config.state_dir.with_name("theirs")
    theirs.mkdir()
    (theirs / "precious").write_text("")
    work = config.state_dir / "backup.draft"

    def swap(*_: object) -> NoReturn:
        work.rename(config.state_dir / "moved")
        work.symlink_to(theirs)
        raise StoreError("enough")

    monkeypatch.setattr(backup, "copy_database", swap)
    with pytest.raises(StoreError, match="enough"):
        taken(config, target)
    assert [path.name for path in theirs.iterdir()] == ["precious"]


@pytest.mark.parametrize("name", PARTS[1:])
def test_a_backup_that_could_not_be_restored_is_not_made(
    config: Config, target: Path, name: str
) -> None:
    (config.state_dir / name).write_bytes(b"no key")
    with pytest.raises(StoreError, match=f"because {name} is damaged"):
        taken(config, target)
    (config.state_dir / name).unlink()
    if name == PARTS[-1]:  # there may be no password
        assert [part.name for part in taken(config, target).parts] == list(PARTS[:-1])
    else:
        with pytest.raises(StoreError, match=f"because {name} is gone"):
            taken(config, target)


def test_a_damaged_database_is_not_backed_up(config: Config, target: Path) -> None:
    with closing(sqlite3.connect(config.database)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [size] = db.execute("PRAGMA page_size").fetchone()
        [page] = db.execute("SELECT rootpage FROM sqlite_schema WHERE name='account'").fetchone()
    with config.database.open("r+b") as file:
        file.seek((page - 1) * size + 8)
        file.write(b"\xff" * 64)
    with pytest.raises(StoreError, match=r"cannot copy .*(damaged|malformed)"):
        taken(config, target)
    assert not target.exists()


def test_where_there_is_no_database_none_is_made(tmp_path: Path, target: Path) -> None:
    config = Config(state_dir=tmp_path / "nowhere")
    with pytest.raises(StoreError, match="because there is none"):
        taken(config, target)
    assert not config.state_dir.exists()
    config.state_dir.mkdir()
    with pytest.raises(StoreError, match="unable to open database"):
        taken(config, target)
    assert not config.database.exists()


def test_who_may_be_at_work_beside_whom(config: Config, target: Path) -> None:
    state = config.state_dir
    with serving(state), using(state), using(state):
        taken(config, target)
        with pytest.raises(StoreError, match="a control plane serves from there"), serving(state):
            pass
        with pytest.raises(StoreError, match="a control plane serves"), replacing(state):
            pass
    with using(state), pytest.raises(StoreError, match="`init` or `backup`"), replacing(state):
        pass
    with replacing(state):
        with pytest.raises(StoreError, match="`restore` is at work"), using(state):
            pass
        with pytest.raises(StoreError, match="`restore` is at work"), serving(state):
            pass
        with pytest.raises(StoreError, match="`restore` is at work"):
            taken(config, target, replace=True)
    with backup._work(state), pytest.raises(StoreError, match="another backup is at work"):
        taken(config, target, replace=True)


def test_a_lock_that_is_a_link_leads_nowhere(config: Config, target: Path) -> None:
    """The user whose state it is may have made it, and root makes a backup."""
    lock, elsewhere = config.state_dir / "state.lock", config.state_dir.with_name("elsewhere")
    lock.unlink(missing_ok=True)
    lock.symlink_to(elsewhere)
    with pytest.raises(StoreError, match="cannot open"):
        taken(config, target)
    assert not elsewhere.exists()


def test_a_second_control_plane_does_not_begin(config: Config, tmp_path: Path) -> None:
    with serving(config.state_dir):
        second = command(config, "serve")
    assert second.exit_code == 1
    assert f"cannot use {config.state_dir}: because a control plane serves" in second.output
    with replacing(config.state_dir):
        adding = command(config, "init")
    assert adding.exit_code == 1
    assert "because `restore` is at work there" in adding.output


def test_the_command_says_what_it_did_beside_the_output(config: Config, target: Path) -> None:
    done = command(config, "backup", str(target))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith(f"backed up {config.database}: ")
    again = command(config, "backup", str(target))
    assert again.exit_code == 1
    assert again.stderr.count("\n") == 1
    assert command(config, "backup", "--force", str(target)).exit_code == 0
    gone = command(config, "backup", str(target.parent / "no" / "folder"))
    assert gone.exit_code == 1
    assert "No such file or directory" in gone.stderr
