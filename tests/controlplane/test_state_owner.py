"""An operator may be root beside a service of another user, and leaves nothing to root there."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.state_dir.lock import as_owner_of
from tests.support.harness import ROOT, Process, free_port, to_toml

pytestmark = pytest.mark.root
SERVICE = 65533  # A user without a name


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the service's user may go through, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="ty-owner-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def settings(folder: Path) -> Path:
    state = folder / "state"
    file = folder / "controlplane.toml"
    state.mkdir(mode=0o700)
    os.chown(state, SERVICE, SERVICE)
    listen = {"api_listen": f"127.0.0.1:{free_port()}", "enrol_listen": "", "metrics_listen": ""}
    file.write_text(to_toml({"state_dir": str(state), **listen}), "utf-8")
    return file


_SEEN = """
mount --bind "$1" "$2"
case $3 in
/root/*)
  mount --bind "$3" "$2/../python"
  mount --types tmpfs --options mode=755 tmpfs /root
  mkdir --parents "$3"
  mount --move "$2/../python" "$3"
esac
cd "$2"
export PYTHONPATH="$2"
shift 3
exec "$@"
"""


def _program(settings: Path, *user: str) -> list[str]:
    """The program where every user may read it, wherever the sources and Python are."""
    seen = settings.with_name("program")
    for folder in (seen, settings.with_name("python")):
        folder.mkdir(exist_ok=True)
    python = Path(sys.executable)
    if python.is_relative_to(ROOT):
        python = seen / python.relative_to(ROOT)
    shell = ["unshare", "--mount", "sh", "-ec", _SEEN, "sh", str(ROOT), str(seen), sys.base_prefix]
    return [*shell, *user, str(python), "-m", "controlplane"]


def _as_root(settings: Path, command: str, *more: str) -> str:
    line = [*_program(settings), command, "--config", str(settings), *more]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def _served(settings: Path) -> Iterator[None]:
    """Serve as the service's user."""
    process = Process("controlplane", settings.with_suffix(".log"))
    user = ("setpriv", f"--reuid={SERVICE}", f"--regid={SERVICE}", "--clear-groups")
    process.launch(
        [*_program(settings, *user), "serve", "--config", str(settings)],
        lambda: "listening" in process.tail(),
    )
    try:
        yield
    finally:
        process.stop()


def _owners(state: Path) -> set[tuple[int, int]]:
    found = [state, *state.rglob("*")]
    assert len(found) > 4
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in found}


@pytest.mark.slow
def test_what_root_makes_and_reads_stays_the_services(settings: Path) -> None:
    state = settings.parent / "state"
    _as_root(settings, "init", "--account", "first")
    assert _owners(state) == {(SERVICE, SERVICE)}
    with _served(settings):
        assert "account second: " in _as_root(settings, "init", "--account", "second")
        _as_root(settings, "backup", str(settings.with_name("backup")))
        assert _owners(state) == {(SERVICE, SERVICE)}
    with _served(settings):  # it can open all of it
        pass
    _as_root(settings, "restore", "--force", str(settings.with_name("backup")))
    assert _owners(state) == {(SERVICE, SERVICE)}
    with _served(settings):
        pass


def test_restore_replaces_a_file_that_root_has_put_there(settings: Path) -> None:
    state = settings.parent / "state"
    _as_root(settings, "init")
    _as_root(settings, "backup", str(settings.with_name("backup")))
    key = state / "authority.pem"
    text = key.read_bytes()
    key.unlink()
    key.write_bytes(text)
    key.chmod(0o600)
    _as_root(settings, "restore", "--force", str(settings.with_name("backup")))
    assert key.stat().st_uid == SERVICE
    [replaced] = state.glob("replaced-*")
    assert (replaced / "authority.pem").stat().st_uid == 0


def test_a_backup_is_roots_and_no_link_has_root_read_what_is_roots(settings: Path) -> None:
    _as_root(settings, "init")
    state = settings.parent / "state"
    vault = settings.with_name("vault")
    vault.mkdir(mode=0o700)
    _as_root(settings, "backup", str(vault / "backup"))
    [made] = vault.iterdir()
    assert made.stat().st_uid == 0
    assert made.stat().st_mode & 0o777 == 0o600
    key = state / "ticket.key"
    secret = vault / "secret"
    key.rename(secret)
    key.symlink_to(secret)
    os.chown(key, SERVICE, SERVICE, follow_symlinks=False)
    with pytest.raises(AssertionError, match="Permission denied"):
        _as_root(settings, "backup", "--force", str(made))
    assert _owners(state) == {(SERVICE, SERVICE)}


def test_root_stays_root_for_a_folder_of_its_own(folder: Path) -> None:
    with as_owner_of(folder):
        assert os.geteuid() == 0


def test_root_is_root_again_afterwards(folder: Path) -> None:
    os.chown(folder, SERVICE, SERVICE)
    groups = os.getgroups()
    with pytest.raises(LookupError), as_owner_of(folder):
        assert os.geteuid() == SERVICE
        assert os.getegid() == SERVICE
        assert os.getgroups() == [SERVICE]
        with as_owner_of(folder):
            assert os.geteuid() == SERVICE
        raise LookupError
    assert os.geteuid() == 0
    assert os.getegid() == 0
    assert os.getgroups() == groups
