"""Restore: an invalid backup changes nothing, and an interruption leaves the old or new state."""

import gzip
import io
import itertools
import shutil
import sqlite3
import tarfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controlplane.backups.backup import back_up
from controlplane.backups.restore import restore
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.state_dir.lock import serving
from controlplane.storage.engine import database_copy
from controlplane.storage.engine.database_copy import NEWEST_SCHEMA
from controlplane.storage.engine.migrations import MIGRATIONS, migrate
from tests.support.controlplane.kept_states import (
    NOW,
    a_backup,
    a_state,
    command,
    contents,
    files,
    rows,
)


@dataclass(frozen=True)
class Made:
    """Read-only fixtures, created once."""

    backup: bytes
    contents: dict[str, object]
    old: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    backup = a_backup(folder).read_bytes()
    old = a_state(folder / "old", "old").state_dir
    return Made(backup, contents(folder / "state of kept"), old)


@pytest.fixture
def config(made: Made, tmp_path: Path) -> Config:
    """A state directory with the account `old`."""
    return Config(state_dir=Path(shutil.copytree(made.old, tmp_path / "state")))


def restored_from(
    config: Config, backup: bytes, *, replace: bool = True
) -> tuple[str, Path | None]:
    return restore(config, io.BytesIO(backup), NOW, replace=replace)


def assert_state_of(made: Made, config: Config) -> None:
    assert contents(config.state_dir) == made.contents
    assert all(
        path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
        for path in (config.state_dir, *config.state_dir.rglob("*"))
    )


def test_restores_the_backup_and_keeps_the_old_files(config: Config, made: Made) -> None:
    old = contents(config.state_dir)
    taken, replaced = restored_from(config, made.backup)
    assert_state_of(made, config)
    assert taken == "2026-05-04T10:30:00Z"
    assert replaced == config.state_dir / "replaced-20260504T103000.000000Z"
    assert contents(replaced) == old
    assert sorted(p.name for p in config.state_dir.iterdir() if p.suffix != ".lock") == [
        "authority.pem",
        "controlplane.db",
        "registry.key",
        replaced.name,
        "ticket.key",
    ]


def test_removes_an_old_key_that_the_backup_lacks(config: Config, tmp_path: Path) -> None:
    _, replaced = restored_from(config, a_backup(tmp_path, "bare", registry=False).read_bytes())
    assert not (config.state_dir / "registry.key").exists()
    assert replaced is not None
    assert (replaced / "registry.key").exists()


def test_restores_on_a_new_machine(made: Made, tmp_path: Path) -> None:
    config = Config(state_dir=tmp_path / "var" / "state")
    assert restored_from(config, made.backup, replace=False)[1] is None
    assert_state_of(made, config)


def test_replaces_a_database_only_with_force_and_while_stopped(config: Config, made: Made) -> None:
    before = files(config.state_dir)
    with pytest.raises(StoreError, match="it has a database: --force"):
        restored_from(config, made.backup, replace=False)
    with serving(config.state_dir), pytest.raises(StoreError, match="a control plane is running"):
        restored_from(config, made.backup)
    assert files(config.state_dir) == before


def test_migrates_a_backup_of_an_older_schema(
    config: Config, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (*MIGRATIONS, "CREATE TABLE later(x);")
    monkeypatch.setattr(database_copy, "migrate", partial(migrate, migrations=steps))
    restored_from(config, made.backup)
    assert rows(config, "PRAGMA user_version") == [(len(steps),)]
    assert rows(config, "SELECT name FROM account") == [("kept",)]


def test_records_the_restore_and_expires_outdated_state(tmp_path: Path) -> None:
    made = a_state(tmp_path / "made", "kept")
    with closing(sqlite3.connect(made.database, isolation_level=None)) as db:
        db.execute(
            "INSERT INTO enrolment_token(id, secret_hash, region, node_pool, expire_ms)"
            " VALUES ('t', x'00', 'eu', 'default', 9000000000000)"
        )
        db.execute(
            "INSERT INTO agent(name, address, downtime_ms, written_incarnation, written_sequence)"
            " VALUES ('h', 'h:1', 86000000, 'i', 7)"
        )
    back_up(made, tmp_path / "backup", NOW, replace=False)
    config = Config(state_dir=tmp_path / "new")
    restored_from(config, (tmp_path / "backup").read_bytes())
    now_ms = int(NOW.timestamp() * 1000)
    assert rows(config, "SELECT expire_ms FROM enrolment_token") == [(now_ms,)]
    lost = "SELECT begin_ms, end_ms FROM lost_time ORDER BY begin_ms DESC LIMIT 1"
    assert rows(config, lost) == [(now_ms, None)], "what was started since is adopted"
    assert rows(config, "SELECT downtime_ms FROM agent") == [(0,)], (
        "no session is given up at once"
    )
    assert rows(config, "SELECT written_incarnation, written_sequence FROM agent") == [("", 0)], (
        "all reports are compared with rows"
    )
    assert rows(config, "SELECT epoch FROM event_counter") == [(int(NOW.timestamp()),)]
    assert rows(config, "SELECT kind, actor, data FROM event") == [
        ("database.restored", "controlplane", '{"of": "2026-05-04T10:30:00Z"}')
    ]


# Bad backups.

Corruption = Callable[[bytes], bytes]


def archived(backup: bytes, changes: dict[str, bytes | None], *more: tarfile.TarInfo) -> bytes:
    """Return the archive with changed files (None removes one), after the members in `more`."""
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(backup)) as archive,
        tarfile.open(fileobj=made, mode="w|", format=tarfile.PAX_FORMAT) as copy,
    ):
        for member in more:
            copy.addfile(member)
        for member in archive:
            found = archive.extractfile(member)
            assert found is not None
            content = changes.get(member.name, found.read())
            if content is not None:
                member.size = len(content)
                copy.addfile(member, io.BytesIO(content))
    return made.getvalue()


def added(
    name: str, headers: dict[str, str] | None = None, kind: bytes = tarfile.REGTYPE
) -> Corruption:
    """Prepend a member."""
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = "/etc/passwd"
    member.pax_headers = headers or {}
    return lambda backup: archived(backup, {}, member)


def replaced(name: str, content: bytes | None) -> Corruption:
    return lambda backup: archived(backup, {name: content})


def edited_database(sql: str) -> Corruption:
    """Run statements on the database of a backup."""

    def corrupt(backup: bytes) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(backup)) as archive:
            found = archive.extractfile("controlplane.db")
            assert found is not None
            content = found.read()
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            db.deserialize(content)
            db.executescript(sql)
            return archived(backup, {"controlplane.db": db.serialize()})

    return corrupt


def damaged_page(backup: bytes) -> bytes:
    """Overwrite the first cells of the table of accounts."""
    with tarfile.open(fileobj=io.BytesIO(backup)) as archive:
        found = archive.extractfile("controlplane.db")
        assert found is not None
        content = bytearray(found.read())
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(bytes(content))
        [page] = db.execute("SELECT rootpage FROM sqlite_schema WHERE name='account'").fetchone()
        [size] = db.execute("PRAGMA page_size").fetchone()
    begin = (page - 1) * size + 8
    content[begin : begin + 64] = b"\xff" * 64
    return archived(backup, {"controlplane.db": bytes(content)})


def a_database(schema: int) -> bytes:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"PRAGMA user_version={schema}")
        return db.serialize()


CORRUPTIONS: dict[str, tuple[Corruption, str]] = {
    "empty": (lambda _: b"", "not a tar archive: empty file"),
    "compressed": (gzip.compress, "not a tar archive"),
    "zeros": (lambda _: b"\0" * 10240, "has no authority.pem"),
    "a file outside": (added("../controlplane.db"), "does not belong in a backup"),
    "an absolute path": (added("/etc/passwd"), "does not belong in a backup"),
    "a link": (added("ticket.key", kind=tarfile.SYMTYPE), "does not belong in a backup"),
    "a hard link": (added("ticket.key", kind=tarfile.LNKTYPE), "does not belong in a backup"),
    "a folder": (added("ticket.key", kind=tarfile.DIRTYPE), "does not belong in a backup"),
    "a device": (added("ticket.key", kind=tarfile.CHRTYPE), "does not belong in a backup"),
    "a sparse file": (
        added("x", {"GNU.sparse.map": "0,1", "GNU.sparse.name": "ticket.key"}),
        "does not belong in a backup",
    ),
    "a bad header": (added("ticket.key", {"GNU.sparse.map": "x,1"}), "is damaged"),
    "a bad time": (added("ticket.key", {"mtime": "1e300"}), "is damaged"),
    "a huge key": (replaced("ticket.key", b"x" * 20000), "is too large: 20000 bytes"),
    "no database": (replaced("controlplane.db", None), "has no controlplane.db"),
    "no authority": (replaced("authority.pem", None), "has no authority.pem"),
    "no ticket key": (replaced("ticket.key", None), "has no ticket.key"),
    "a bad authority": (replaced("authority.pem", b"x"), "authority.pem is damaged"),
    "a bad ticket key": (replaced("ticket.key", b"x"), "ticket.key is damaged"),
    "a bad registry key": (replaced("registry.key", b"x"), "registry.key is damaged"),
    "text for a database": (replaced("controlplane.db", b"x" * 8192), "not a database"),
    "an empty database": (replaced("controlplane.db", b""), "not one of a control plane"),
    "a damaged page": (damaged_page, "damaged|malformed"),
    "a row that refers to none": (
        edited_database(
            "PRAGMA foreign_keys=OFF; INSERT INTO tag VALUES('x','x','x','x','x',0,'','',0)"
        ),
        "a row of tag refers to none of application",
    ),
    "a newer schema": (
        replaced("controlplane.db", a_database(NEWEST_SCHEMA + 1)),
        "schema .* is newer than .*: use the version that made it",
    ),
}


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_invalid_backup_changes_nothing(config: Config, made: Made, kind: str) -> None:
    corrupt, why = CORRUPTIONS[kind]
    before = files(config.state_dir)
    with pytest.raises(StoreError, match=why):
        restored_from(config, corrupt(made.backup))
    assert files(config.state_dir) == before


def test_restore_removes_the_draft_of_a_killed_one(config: Config, made: Made) -> None:
    draft = config.state_dir / "restore.draft"
    draft.mkdir()
    (draft / "controlplane.db").write_text("half of it")
    restored_from(config, made.backup)
    assert_state_of(made, config)
    assert not draft.exists()


def test_truncated_backup_changes_nothing(config: Config, made: Made) -> None:
    before = files(config.state_dir)
    with tarfile.open(fileobj=io.BytesIO(made.backup)) as archive:
        read = archive.getmembers()
    ends = set(range(0, 4096, 509))
    for member in read:
        ends |= {member.offset, member.offset + 1, member.offset_data, member.offset_data + 1}
    ends |= {len(made.backup) // 2, read[-1].offset_data + read[-1].size - 1}
    for end in sorted(ends):
        with pytest.raises(StoreError, match=r"damaged|has no"):
            restored_from(config, made.backup[:end])
        assert files(config.state_dir) == before


def test_interrupted_restore_leaves_the_old_state_or_must_be_repeated(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is undone after the first rename, so an error there is equivalent to a kill."""
    found = Counter[str]()
    left = [0]

    def failing(step: Callable[..., Any]) -> Callable[..., Any]:
        def fail_at_step(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise OSError("Input/output error")
            return step(*args, **kwargs)

        return fail_at_step

    for number in itertools.count(1):
        config = Config(state_dir=Path(shutil.copytree(made.old, tmp_path / str(number))))
        (config.state_dir / "controlplane.db-wal").write_bytes(b"of the old database")
        (config.state_dir / "controlplane.db-wal").chmod(0o600)
        old = files(config.state_dir)
        left[0] = number
        with monkeypatch.context() as broken:
            for step in ("rename", "touch", "unlink", "rmdir"):
                broken.setattr(Path, step, failing(getattr(Path, step)))
            try:
                restored_from(config, made.backup)
                break
            except StoreError as error:
                is_unfinished = "cannot finish the restore" in str(error)
        if is_unfinished:
            for arguments in (("serve",), ("init",), ("backup", str(tmp_path / "new"))):
                refused = command(config, *arguments)
                assert refused.exit_code == 1
                assert "a restore was interrupted there: repeat it" in refused.output
            _, replaced = restore(config, io.BytesIO(made.backup), datetime.now(UTC), replace=True)
            assert_state_of(made, config)
            assert replaced is not None
            assert files(replaced) == old
            assert list(config.state_dir.glob("replaced-*")) == [replaced]
        else:
            assert files(config.state_dir) == old
        found["repeated" if is_unfinished else "old"] += 1
    assert found["old"] > 0
    assert found["repeated"] > 5


# The command.


def test_command_reports_the_restored_backup(config: Config, made: Made, tmp_path: Path) -> None:
    path = tmp_path / "kept.backup"
    path.write_bytes(made.backup)
    refused = command(config, "restore", str(path))
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    done = command(config, "restore", "--force", str(path))
    assert done.exit_code == 0, done.output
    assert "restored the backup of 2026-05-04T10:30:00Z" in done.stdout
    assert f"replaced files are in {config.state_dir}/replaced-" in done.stdout
    assert "create newer accounts again with `init --account NAME`" in done.stdout
    nothing = command(config, "restore", "--force", f"{path}.gone")
    assert nothing.exit_code == 1
    assert nothing.stderr.count("\n") == 1
