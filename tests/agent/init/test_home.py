"""HOME of a program, by /etc/passwd in the place where the init runs."""

import os
from pathlib import Path

import pytest

from tests.support.agent.init_process import InitProcess

pytestmark = pytest.mark.root  # a root folder of its own

ROOT_ENTRY = b"root:x:0:0:root:/:/bin/sh\n"
OTHER_ENTRY = b"game:x:1000:1000::/home/game:\n"
_IN_OWN_ETC = 'mount -t tmpfs none /etc && cp "$0" /etc/passwd && exec "$@"'
_WITHOUT_ETC = 'mount -t tmpfs none /etc && exec "$@"'


def home(folder: Path, passwd: bytes | None, own: dict[str, str], given: dict[str, str]) -> str:
    """Return what root's program has as HOME, "" for none, with this file."""
    file = folder / "passwd"
    file.write_bytes(passwd or b"")
    script = _WITHOUT_ETC if passwd is None else _IN_OWN_ETC
    before = ["unshare", "--mount", "sh", "-c", script, str(file)]
    env = {"PATH": os.environ["PATH"], **own}
    with InitProcess(folder / "channel", before=before, env=env) as init:
        init.hand_over("sh", "-c", "env | grep ^HOME=", env=given)
        return init.output().rstrip("\n").removeprefix("HOME=")


@pytest.mark.parametrize(
    ("passwd", "own", "given", "expected"),
    [
        (None, {"HOME": "/"}, {}, "/tmp"),
        (b"", {"HOME": "/"}, {}, "/tmp"),
        (OTHER_ENTRY, {"HOME": "/"}, {}, "/tmp"),
        (OTHER_ENTRY * 600, {"HOME": "/"}, {}, "/tmp"),
        (OTHER_ENTRY, {}, {}, "/tmp"),
        (OTHER_ENTRY + ROOT_ENTRY, {"HOME": "/"}, {}, "/"),
        (OTHER_ENTRY * 600 + ROOT_ENTRY, {"HOME": "/"}, {}, "/"),
        (OTHER_ENTRY + ROOT_ENTRY, {}, {}, ""),
        (OTHER_ENTRY, {"HOME": "/games"}, {}, "/games"),
        (OTHER_ENTRY, {"HOME": "/"}, {"HOME": "/given"}, "/given"),
        (OTHER_ENTRY, {"HOME": "/"}, {"HOME": "/"}, "/"),
        (OTHER_ENTRY, {"HOME": "/"}, {"HOMES": "/given"}, "/tmp"),
        (b"x" * 2**20 + b"\n", {"HOME": "/"}, {}, "/"),  # too long to be sure
    ],
)
def test_home_is_tmp_for_a_user_without_an_entry(
    tmp_path: Path,
    passwd: bytes | None,
    own: dict[str, str],
    given: dict[str, str],
    expected: str,
) -> None:
    assert home(tmp_path, passwd, own, given) == expected


def test_what_is_no_file_does_not_hold_a_start_up(tmp_path: Path) -> None:
    script = 'mount -t tmpfs none /etc && mkfifo /etc/passwd && exec "$@"'
    before = ["unshare", "--mount", "sh", "-c", script, "sh"]
    env = {"PATH": os.environ["PATH"], "HOME": "/"}
    with InitProcess(tmp_path, before=before, env=env) as init:
        init.hand_over("sh", "-c", 'echo "$HOME"')
        assert init.output() == "/tmp\n"
