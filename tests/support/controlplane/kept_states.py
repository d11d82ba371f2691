"""State directories of stopped control planes, and their content."""

import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import sqlite_utils
from click.testing import CliRunner, Result
from cryptography.fernet import Fernet

from controlplane.backups.backup import AUTHORITY, KEYS, REGISTRY_KEY, TICKET_KEY, back_up
from controlplane.cli.main import main
from controlplane.pki.authority import Authority
from controlplane.settings.model import Config
from controlplane.state_dir.private_files import write_private
from controlplane.storage.engine.migrations import migrate

NOW = datetime(2026, 5, 4, 10, 30, tzinfo=UTC)


def a_state(folder: Path, account: str, *, registry: bool = True) -> Config:
    """A state directory whose database has this account, partly only in its WAL."""
    config = Config(state_dir=folder)
    write_private(folder / AUTHORITY, Authority.create(time.time()).to_pem())
    write_private(folder / TICKET_KEY, account.encode().ljust(32, b"."))
    if registry:
        write_private(folder / REGISTRY_KEY, Fernet.generate_key())
    connection = sqlite3.connect(config.database, isolation_level=None)
    config.database.chmod(0o600)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    migrate(sqlite_utils.Database(connection))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("INSERT INTO account(name, created_ms) VALUES (?, 0)", (account,))
    # As after SIGKILL: closing the database would checkpoint its WAL.
    left = {p: p.read_bytes() for p in (folder / f"{config.database.name}-wal", config.database)}
    connection.close()
    for path, content in left.items():
        write_private(path, content)
    return config


def settings_of(config: Config) -> str:
    """Write a settings file that names a state directory; return its path."""
    path = config.state_dir.with_suffix(".toml")
    path.write_text(f'state_dir = "{config.state_dir}"\n')
    return str(path)


def command(config: Config, name: str, *arguments: str) -> Result:
    """Run a command on a state directory."""
    return CliRunner().invoke(main, [name, "--config", settings_of(config), *arguments])


def rows(config: Config, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(config.database)) as connection:
        return connection.execute(sql).fetchall()


def contents(state_dir: Path) -> dict[str, object]:
    """The accounts and keys of a state directory.

    Reads a copy, since the last reader of a database checkpoints its WAL.
    """
    with tempfile.TemporaryDirectory() as folder:
        seen = Config(state_dir=Path(shutil.copytree(state_dir, Path(folder) / "copy")))
        paths = [seen.state_dir / name for name in KEYS]
        found: dict[str, object] = {at.name: at.read_bytes() for at in paths if at.exists()}
        assert rows(seen, "PRAGMA integrity_check") == [("ok",)]
        return found | {"accounts": rows(seen, "SELECT name FROM account")}


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder except locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


def a_backup(folder: Path, account: str = "kept", *, registry: bool = True) -> Path:
    """A backup file of `a_state`."""
    config = a_state(folder / f"state of {account}", account, registry=registry)
    target = folder / f"{account}.backup"
    back_up(config, target, NOW, replace=False)
    return target
