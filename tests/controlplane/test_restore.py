"""Restoring: what is no whole backup changes nothing; killed, it leaves the old or the new."""

import gzip
import hashlib
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controlplane.backups import restore as restoring
from controlplane.backups.backup import back_up
from controlplane.backups.backup_file import FORMAT
from controlplane.backups.restore import Restored, finish, restore
from controlplane.cli.main import main
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.state_dir.lock import serving
from controlplane.storage.engine.database_copy import NEWEST_SCHEMA
from tests.controlplane.kept_states import (
    NOW,
    a_backup,
    a_state,
    contents,
    files,
    rows,
    with_manifest,
)

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Made:
    """Made once, and changed by nobody."""

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
def kept(made: Made) -> bytes:
    """A backup of the account `kept`."""
    return made.backup


@pytest.fixture
def config(made: Made, tmp_path: Path) -> Config:
    """A state directory that has the account `old`."""
    return Config(state_dir=Path(shutil.copytree(made.old, tmp_path / "state")))


def put_back(config: Config, backup: bytes, *, replace: bool = True) -> Restored:
    return restore(config, io.BytesIO(backup), NOW, replace=replace)


def is_as(made: Made, config: Config) -> None:
    assert contents(config.state_dir) == made.contents
    assert all(
        path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
        for path in (config.state_dir, *config.state_dir.rglob("*"))
    )


def test_a_restored_state_is_that_of_the_backup_and_the_old_one_is_kept(
    config: Config, made: Made
) -> None:
    old = contents(config.state_dir)
    log = (config.state_dir / "controlplane.db-wal").read_bytes()
    assert log, "what only the log has is the account"
    restored = put_back(config, made.backup)
    is_as(made, config)
    assert restored.manifest.time == "2026-05-04T10:30:00Z"
    assert restored.replaced is not None
    assert restored.replaced.name == "replaced-20260504T103000.000000Z"
    assert contents(restored.replaced) == old
    assert sorted(p.name for p in config.state_dir.iterdir() if p.suffix != ".lock") == [
        "authority.pem",
        "controlplane.db",
        "registry.key",
        restored.replaced.name,
        "ticket.key",
    ]


def test_a_key_that_the_backup_lacks_is_not_that_of_another(
    config: Config, tmp_path: Path
) -> None:
    backup = a_backup(tmp_path, "bare", registry=False)
    restored = put_back(config, backup.read_bytes())
    assert not (config.state_dir / "registry.key").exists()
    assert restored.replaced is not None
    assert (restored.replaced / "registry.key").exists()


def test_a_new_machine_has_nothing_to_keep(made: Made, tmp_path: Path) -> None:
    config = Config(state_dir=tmp_path / "var" / "state")
    assert put_back(config, made.backup, replace=False).replaced is None
    is_as(made, config)


def test_a_database_is_replaced_only_when_told(config: Config, kept: bytes) -> None:
    before = files(config.state_dir)
    with pytest.raises(StoreError, match="because it has a database: --force"):
        put_back(config, kept, replace=False)
    with serving(config.state_dir), pytest.raises(StoreError, match="a control plane serves"):
        put_back(config, kept)
    assert files(config.state_dir) == before


def test_the_audit_knows_of_it_and_tokens_of_hosts_end(tmp_path: Path) -> None:
    made = a_state(tmp_path / "made", "kept")
    with closing(sqlite3.connect(made.database, isolation_level=None)) as db:
        db.execute(
            "INSERT INTO enrolment_token(id, secret_hash, region, node_pool, expire_ms)"
            " VALUES ('t', x'00', 'eu', 'default', 9000000000000)"
        )
    back_up(made, tmp_path / "backup", NOW, replace=False)
    config = Config(state_dir=tmp_path / "new")
    put_back(config, (tmp_path / "backup").read_bytes())
    now_ms = int(NOW.timestamp() * 1000)
    assert rows(config, "SELECT expire_ms FROM enrolment_token") == [(now_ms,)]
    assert rows(config, "SELECT kind, actor, data FROM event") == [
        ("database.restored", "controlplane", '{"of": "2026-05-04T10:30:00Z"}')
    ]


def test_silence_from_before_the_backup_gives_no_session_up(tmp_path: Path) -> None:
    made = a_state(tmp_path / "made", "kept")
    with closing(sqlite3.connect(made.database, isolation_level=None)) as db:
        db.execute("INSERT INTO agent(name, address, silent_ms) VALUES ('h', 'h:1', 86000000)")
    back_up(made, tmp_path / "backup", NOW, replace=False)
    config = Config(state_dir=tmp_path / "new")
    put_back(config, (tmp_path / "backup").read_bytes())
    assert rows(config, "SELECT silent_ms FROM agent") == [(0,)]


# What is no whole backup.


def members(backup: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(backup)) as archive:
        read = []
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            read.append((member, content.read()))
        return read


def archived(
    changed: list[tuple[tarfile.TarInfo, bytes]], *, kind: int = tarfile.GNU_FORMAT
) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w|", format=kind) as archive:
        for member, content in changed:
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def added(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE) -> Any:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(content), kind, "/etc/passwd"
    return member, content


def renamed(backup: bytes, name: str) -> bytes:
    read = members(backup)
    read[1][0].name = name
    return archived(read)


def retyped(backup: bytes, kind: bytes) -> bytes:
    read = members(backup)
    return archived([read[0], added("controlplane.db", kind=kind), *read[2:]])


def replaced(backup: bytes, name: str, content: bytes) -> bytes:
    """Another content of a part, of which size and checksum are right."""
    digest = hashlib.sha256(content).hexdigest()
    read = [(m, content if m.name == name else c) for m, c in members(backup)]
    for member, text in read:
        member.size = len(text)

    def tell(manifest: dict[str, Any]) -> None:
        for part in manifest["parts"]:
            if part["name"] == name:
                part.update(size=len(content), sha256=digest)

    return with_manifest(archived(read), tell)


def told(key: str, value: object) -> Callable[[bytes], bytes]:
    return lambda backup: with_manifest(backup, lambda manifest: manifest.update({key: value}))


def told_of_part(number: int, key: str, value: object) -> Callable[[bytes], bytes]:
    def change(manifest: dict[str, Any]) -> None:
        manifest["parts"][number][key] = value

    return lambda backup: with_manifest(backup, change)


def without(number: int) -> Callable[[bytes], bytes]:
    """Neither the part nor the manifest has it."""

    def spoil(backup: bytes) -> bytes:
        read = members(backup)
        del read[number + 1]
        return with_manifest(archived(read), lambda manifest: manifest["parts"].pop(number))

    return spoil


def not_ours(backup: bytes) -> bytes:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE mine(x)")
        db.execute(f"PRAGMA user_version={NEWEST_SCHEMA}")
        return replaced(backup, "controlplane.db", db.serialize())


def torn_inside(backup: bytes) -> bytes:
    """A database whose pages are damaged, in a backup that was made of it so."""
    content = {m.name: c for m, c in members(backup)}["controlplane.db"]
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        [page] = db.execute("SELECT rootpage FROM sqlite_schema WHERE name='account'").fetchone()
        [size] = db.execute("PRAGMA page_size").fetchone()
    begin = (page - 1) * size + 8
    return replaced(
        backup, "controlplane.db", content[:begin] + b"\xff" * 64 + content[begin + 64 :]
    )


def newer_inside(backup: bytes) -> bytes:
    """The manifest does not tell that the database is of a newer program."""
    content = {m.name: c for m, c in members(backup)}["controlplane.db"]
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        db.execute(f"PRAGMA user_version={NEWEST_SCHEMA + 1}")
        return replaced(backup, "controlplane.db", db.serialize())


SPOILT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "its end is missing"),
    "text": (lambda _: b"SQLite format 3\0" * 64, "no backup, or damaged"),
    "compressed": (gzip.compress, "no backup, or damaged|its end is missing"),
    "of nothing": (lambda _: b"\0" * 10240, "its end stands where manifest.json should be"),
    "another archive": (lambda b: archived(members(b)[1:]), "'controlplane.db' stands where"),
    "outside": (lambda b: renamed(b, "../controlplane.db"), r"'\.\./controlplane.db' stands"),
    "absolute": (lambda b: renamed(b, "/etc/passwd"), "'/etc/passwd' stands where"),
    "a long name": (lambda b: renamed(b, "x" * 200), "@LongLink' stands where"),
    "pax headers": (
        lambda b: archived([added("ä" * 99), *members(b)], kind=tarfile.PAX_FORMAT),
        "stands where",
    ),
    "a link": (lambda b: retyped(b, tarfile.SYMTYPE), "is no plain file"),
    "a hard link": (lambda b: retyped(b, tarfile.LNKTYPE), "is no plain file"),
    "a folder": (lambda b: retyped(b, tarfile.DIRTYPE), "is no plain file|stands where"),
    "a device": (lambda b: retyped(b, tarfile.CHRTYPE), "is no plain file"),
    "one too many": (lambda b: archived([*members(b), added("more")]), "more in it than"),
    "twice": (lambda b: archived([*members(b), members(b)[-1]]), "more in it than"),
    "another order": (lambda b: archived([*members(b)[:2], *members(b)[:1:-1]]), "stands where"),
    "no manifest": (lambda b: archived([added("manifest.json", b"[]")]), "manifest is damaged"),
    "a huge manifest": (
        lambda b: archived([added("manifest.json", b" " * 70000), *members(b)[1:]]),
        "manifest is too large",
    ),
    "a newer format": (told("format", FORMAT + 1), "format 2, and this program knows 1"),
    "a format of its own": (told("format", "x"), "manifest is damaged: format"),
    "a newer schema": (told("schema_number", NEWEST_SCHEMA + 1), "newer than .* made it, or a"),
    "no schema": (told("schema_number", 0), "manifest is damaged: schema_number"),
    "another deployment's": (told("environment", "sandbox"), "of the environment 'sandbox'"),
    "unknown keys": (told("more", 1), "manifest is damaged: more"),
    "no parts": (told("parts", []), "its parts are none"),
    "another size": (told_of_part(0, "size", 1), "instead of 1"),
    "a negative size": (told_of_part(0, "size", -1), "manifest is damaged: parts.0.size"),
    "larger than the disk": (told_of_part(0, "size", 2**60), "MiB of .*'s disk"),
    "another checksum": (told_of_part(1, "sha256", "0" * 64), "authority.pem is damaged"),
    "a name outside": (told_of_part(1, "name", "../x"), "its parts are"),
    "without the database": (without(0), "its parts are"),
    "without the authority": (without(1), "its parts are"),
    "without the ticket key": (without(2), "its parts are"),
    "a huge key": (lambda b: replaced(b, "ticket.key", b"x" * 20000), "too large for one"),
    "a bad authority": (lambda b: replaced(b, "authority.pem", b"x"), "authority.pem is damaged"),
    "a bad ticket key": (lambda b: replaced(b, "ticket.key", b"x"), "ticket.key is damaged"),
    "a bad registry key": (lambda b: replaced(b, "registry.key", b"x"), "registry.key is damaged"),
    "no database": (lambda b: replaced(b, "controlplane.db", b"x" * 8192), "not a database"),
    "an empty database": (lambda b: replaced(b, "controlplane.db", b""), "schema 0"),
    "another database": (not_ours, "no such table"),
    "a damaged database": (torn_inside, "damaged|malformed"),
    "a newer database": (newer_inside, "instead of"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_what_is_no_whole_backup_changes_nothing(config: Config, kept: bytes, kind: str) -> None:
    spoil, why = SPOILT[kind]
    before = files(config.state_dir)
    with pytest.raises(StoreError, match=why):
        put_back(config, spoil(kept))
    assert files(config.state_dir) == before


def test_wherever_a_backup_ends_too_early_it_changes_nothing(config: Config, kept: bytes) -> None:
    before = files(config.state_dir)
    ends = set(range(0, 4096, 509))
    [last] = [m for m, _ in members(kept) if m.name == "registry.key"]
    ends |= {len(kept) // 2, last.offset, last.offset_data, last.offset_data + 511}
    for end in sorted(ends):
        with pytest.raises(StoreError, match=r"its end is missing|its end stands|damaged"):
            put_back(config, kept[:end])
        assert files(config.state_dir) == before


def test_a_flipped_bit_is_found_or_says_nothing(
    config: Config, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But between the parts, where an archive has zeros that nobody reads."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    before, kept = files(config.state_dir), made.backup
    starts = [m.offset for m, _ in members(kept)]
    places = {*range(0, len(kept), 12007), *(start + 3 for start in starts)}
    found = 0
    for place in sorted(places):
        spoilt = bytearray(kept)
        spoilt[place] ^= 0x10
        try:
            put_back(config, bytes(spoilt))
        except StoreError:
            found += 1
            assert files(config.state_dir) == before
        else:
            is_as(made, config)
            config = Config(state_dir=Path(shutil.copytree(made.old, tmp_path / str(place))))
            before = files(config.state_dir)
    assert found > len(places) // 2


# Killed in the middle.


def test_whoever_is_killed_leaves_the_old_state_or_the_new_one(tmp_path: Path) -> None:
    """By SIGKILL before each thing that a restore does to a file, and then once more at each
    thing that finishing it does.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.controlplane.killed_restores", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)
    assert counted["old"] > 5
    assert counted["new"] > 15
    assert counted["killed again"] > 15


def test_what_was_broken_off_is_finished_before_anything_else(
    config: Config, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("Input/output error")

    old, kept = contents(config.state_dir), made.backup
    with monkeypatch.context() as broken:
        broken.setattr(restoring, "flush_folder", fail)
        with pytest.raises(StoreError, match="Input/output error"):
            put_back(config, kept)
    assert contents(config.state_dir) == old
    with monkeypatch.context() as broken:
        stage = restoring._stage
        broken.setattr(
            restoring,
            "_stage",
            lambda *told: (stage(*told), broken.setattr(restoring, "flush_folder", fail)),
        )
        with pytest.raises(StoreError, match=r"cannot finish the restore .* fix that"):
            put_back(config, kept)
        with pytest.raises(StoreError, match=r"cannot finish the restore .* fix that"):
            finish(config.state_dir)
    for arguments in (("init",), ("backup", str(tmp_path / "new"))):
        refused = command(config, *arguments)
        assert refused.exit_code == 1
        assert "because a restore was broken off there" in refused.output
    half = Path(shutil.copytree(config.state_dir, tmp_path / "half"))
    with pytest.raises(StoreError, match="it has a database"):
        put_back(config, kept, replace=False)
    is_as(made, config)
    assert finish(config.state_dir) is None

    def end(_: Config) -> None:
        raise StoreError("the first start comes after that")

    monkeypatch.setattr("controlplane.cli.server.first_start", end)
    serving_half = command(Config(state_dir=half), "serve")
    assert "the first start comes after that" in serving_half.output
    is_as(made, Config(state_dir=half))


# The command.


def command(config: Config, *arguments: str, typed: bytes = b"") -> Result:
    path = config.state_dir.with_suffix(".toml")
    path.write_text(f'state_dir = "{config.state_dir}"\n')
    name, *more = arguments
    return CliRunner().invoke(main, [name, "--config", str(path), *more], input=typed)


def test_the_command_says_what_is_left_to_do(config: Config, kept: bytes, tmp_path: Path) -> None:
    (tmp_path / "kept.backup").write_bytes(kept)
    path = str(tmp_path / "kept.backup")
    refused = command(config, "restore", path)
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    done = command(config, "restore", "--force", path)
    assert done.exit_code == 0, done.output
    for text in (
        "restored the backup of 2026-05-04T10:30:00Z",
        f"what was there before is in {config.state_dir}/replaced-",
        "init --account",
        "revoke again agents",
    ):
        assert text in done.stdout
    nothing = command(config, "restore", "--force", f"{path}.gone")
    assert (nothing.exit_code, nothing.stderr.count("\n")) == (1, 1)


def run(config: Config, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    path = config.state_dir.with_suffix(".toml")
    path.write_text(f'state_dir = "{config.state_dir}"\n')
    name, *more = arguments
    return subprocess.Popen(
        [sys.executable, "-m", "controlplane", name, "--config", str(path), *more],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        **streams,
    )


def test_a_backup_goes_through_a_pipe_and_never_to_a_terminal(
    config: Config, tmp_path: Path
) -> None:
    new = Config(state_dir=tmp_path / "new")
    with (
        run(config, "backup", "-", stdout=subprocess.PIPE) as writing,
        run(new, "restore", "-", stdin=writing.stdout, stdout=subprocess.DEVNULL) as reading,
    ):
        assert writing.stdout is not None
        writing.stdout.close()
        assert (writing.wait(), reading.wait()) == (0, 0)
    assert contents(new.state_dir) == contents(config.state_dir)
    ours, theirs = os.openpty()
    try:
        for arguments in (("backup", "-"), ("restore", "-")):
            with run(config, *arguments, stdin=theirs, stdout=theirs) as shown:
                assert shown.wait() == 2
    finally:
        os.close(theirs)
        os.close(ours)


def test_a_reader_that_goes_away_is_a_failure(config: Config) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with run(config, "backup", "-", stdout=writing) as broken:
        os.close(writing)
        assert broken.stderr is not None
        said = broken.stderr.read().decode()
        assert broken.wait() == 1
    assert "cannot write the backup: because Broken pipe" in said
    assert "Traceback" not in said
