"""Backups: complete, private, and consistent during writes."""

import errno
import os
import sqlite3
import subprocess
import sys
import tarfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from controlplane.backups import backup
from controlplane.backups.backup import KEYS, PARTS, back_up
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.state_dir.lock import replacing, serving, using
from controlplane.storage.engine.database_copy import copy_database
from tests.support.controlplane.kept_states import (
    NOW,
    a_state,
    command,
    contents,
    files,
    rows,
    settings_of,
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return a_state(tmp_path / "state", "studio")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "there.backup"


def backed_up(config: Config, target: Path, *, replace: bool = False) -> list[str]:
    """Make a backup; return the names in it."""
    back_up(config, target, NOW, replace=replace)
    with tarfile.open(target) as archive:
        return archive.getnames()


def test_backup_is_a_tar_of_plain_files(config: Config, target: Path, tmp_path: Path) -> None:
    before = files(config.state_dir)
    umask = os.umask(0)
    try:
        assert backed_up(config, target) == list(PARTS)
    finally:
        os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        for member in archive:
            assert member.isreg() is True
            assert member.mode == 0o600
            assert member.mtime == NOW.timestamp()
        archive.extractall(tmp_path / "out", filter="data")
    found = Config(state_dir=tmp_path / "out")
    assert rows(found, "PRAGMA journal_mode") == [("delete",)]
    assert contents(found.state_dir) == contents(config.state_dir)
    after = files(config.state_dir)
    assert [after[name] for name in KEYS] == [before[name] for name in KEYS]
    assert after.keys() <= before.keys()


def test_backup_is_a_consistent_snapshot_during_writes(config: Config, tmp_path: Path) -> None:
    """Each transaction adds a row to two tables, so their difference is constant in a snapshot."""
    begun = threading.Event()
    ended = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(config.database, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=OFF")
            while not ended.is_set():
                db.executescript(
                    "BEGIN; INSERT INTO region(name) VALUES (hex(randomblob(8)));"
                    " INSERT INTO account(name, created_ms) VALUES (hex(randomblob(8)), 0); COMMIT"
                )
                begun.set()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        assert begun.wait(10)
        for number in range(5):
            copy = tmp_path / str(number)
            copy.mkdir()
            copy_database(config.database, copy / "controlplane.db")
            counts = "SELECT (SELECT count(*) FROM account) - (SELECT count(*) FROM region)"
            assert rows(Config(state_dir=copy), counts) == [(1,)]
    finally:
        ended.set()
        writing.join()


def test_replaces_a_file_only_with_force_and_atomically(
    config: Config, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object, file: Any, __: object) -> NoReturn:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    target.write_text("of yesterday")
    with pytest.raises(StoreError, match="it exists: --force replaces it"):
        backed_up(config, target)
    with monkeypatch.context() as broken:
        broken.setattr(backup, "_write_archive", fail)
        with pytest.raises(StoreError, match="No space left"):
            backed_up(config, target, replace=True)
    assert target.read_text() == "of yesterday"
    assert [path.name for path in target.parent.iterdir() if path.is_file()] == [target.name]
    assert backed_up(config, target, replace=True) == list(PARTS)
    assert target.stat().st_mode & 0o777 == 0o600


def test_backup_removes_the_draft_of_a_killed_one(config: Config, target: Path) -> None:
    draft = config.state_dir / "backup.draft"
    draft.mkdir()
    (draft / "controlplane.db").write_text("half of it")
    assert backed_up(config, target) == list(PARTS)
    assert not draft.exists()


def test_does_not_follow_links_in_the_state_directory(config: Config, target: Path) -> None:
    """The directory's owner may have created them, while root makes a backup."""
    theirs = config.state_dir.with_name("theirs")
    state = config.state_dir
    theirs.mkdir()
    (theirs / "precious").write_text("")
    for name, to in (("backup.draft", theirs), ("state.lock", theirs / "lock")):
        (state / name).unlink(missing_ok=True)
        (state / name).symlink_to(to)
        with pytest.raises(StoreError, match=f"{name}"):
            backed_up(config, target)
        (state / name).unlink()
    assert [path.name for path in theirs.iterdir()] == ["precious"]


@pytest.mark.parametrize("name", KEYS)
def test_refuses_a_backup_without_valid_keys(config: Config, target: Path, name: str) -> None:
    (config.state_dir / name).write_bytes(b"no key")
    with pytest.raises(StoreError, match=f": {name} is damaged"):
        backed_up(config, target)
    (config.state_dir / name).unlink()
    if name == "registry.key":  # optional
        assert backed_up(config, target) == [part for part in PARTS if part != name]
    else:
        with pytest.raises(StoreError, match=f": {name} is missing: put a copy of it back"):
            backed_up(config, target)
        assert not target.exists()


def test_refuses_to_back_up_a_damaged_database(config: Config, target: Path) -> None:
    with closing(sqlite3.connect(config.database)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [size] = db.execute("PRAGMA page_size").fetchone()
        [page] = db.execute("SELECT rootpage FROM sqlite_schema WHERE name='account'").fetchone()
    with config.database.open("r+b") as file:
        file.seek((page - 1) * size + 8)
        file.write(b"\xff" * 64)
    with pytest.raises(StoreError, match=r"cannot back up .*(damaged|malformed)"):
        backed_up(config, target)
    assert not target.exists()


def test_does_not_create_a_missing_database(tmp_path: Path, target: Path) -> None:
    config = Config(state_dir=tmp_path / "nowhere")
    with pytest.raises(StoreError, match="there is no such directory"):
        backed_up(config, target)
    assert not config.state_dir.exists()
    config.state_dir.mkdir()
    with pytest.raises(StoreError, match="unable to open database"):
        backed_up(config, target)
    assert not config.database.exists()


def test_locks_exclude_conflicting_commands(config: Config, target: Path) -> None:
    state = config.state_dir
    with serving(state), using(state):
        for other in (serving, replacing):
            with pytest.raises(StoreError, match=r"a control plane .*is running"), other(state):
                pass
        with pytest.raises(StoreError, match="`init`, `backup` or `restore` is running"):
            backed_up(config, target)
        second = command(config, "serve")
    assert second.exit_code == 1
    assert f"cannot use {state}: a control plane or `restore` is running" in second.stderr
    with serving(state):
        backed_up(config, target)
    with replacing(state):
        for other in (serving, using):
            with pytest.raises(StoreError, match="`restore`"), other(state):
                pass
        adding = command(config, "init")
    assert adding.exit_code == 1
    assert "`restore` is running there" in adding.stderr


# The command.


def test_command_reports_on_standard_error(config: Config, target: Path) -> None:
    done = command(config, "backup", str(target))
    assert done.exit_code == 0
    assert done.stdout == ""
    assert done.stderr == f"backed up {config.state_dir}\n"
    again = command(config, "backup", str(target))
    assert again.exit_code == 1
    assert again.stderr.count("\n") == 1
    assert command(config, "backup", "--force", str(target)).exit_code == 0
    gone = command(config, "backup", str(target.parent / "no" / "folder"))
    assert gone.exit_code == 1
    assert "No such file or directory" in gone.stderr


def run(config: Config, name: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Run a command that writes to its standard output or reads its standard input."""
    program = [sys.executable, "-m", "controlplane", name, "--config", settings_of(config)]
    streams |= {"stderr": subprocess.PIPE, "env": {**os.environ, "PYTHONPATH": "."}}
    return subprocess.Popen([*program, "-"], **streams)


def test_reader_that_closes_the_pipe_is_an_error_in_one_line(config: Config) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with run(config, "backup", stdout=writing) as broken:
        os.close(writing)
        assert broken.stderr is not None
        printed = broken.stderr.read().decode()
        assert broken.wait() == 1
    assert f"cannot back up {config.state_dir}: " in printed
    assert "Broken pipe" in printed
    assert "Traceback" not in printed


def test_backup_uses_a_pipe_but_never_a_terminal(config: Config, tmp_path: Path) -> None:
    new = Config(state_dir=tmp_path / "new")
    with (
        run(config, "backup", stdout=subprocess.PIPE) as writing,
        run(new, "restore", stdin=writing.stdout, stdout=subprocess.DEVNULL) as reading,
    ):
        assert writing.stdout is not None
        writing.stdout.close()
        assert writing.wait() == 0
        assert reading.wait() == 0
    assert contents(new.state_dir) == contents(config.state_dir)
    ours, theirs = os.openpty()
    try:
        for name in ("backup", "restore"):
            with run(config, name, stdin=theirs, stdout=theirs) as shown:
                assert shown.wait() == 2
    finally:
        os.close(theirs)
        os.close(ours)
