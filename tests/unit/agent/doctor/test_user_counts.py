from pathlib import Path

import pytest

from agent.doctor.facts import UserCount
from agent.doctor.user_counts import user_counts
from agent.domain.host.kernel_needs import INOTIFY_INSTANCES, KEYS, PENDING_SIGNALS

KEY_USERS = """    0:    12 11/11 6/1000000 73/25000000
 1000:     4 4/4 3/200 36/20000
"""


class Proc:
    """A folder like /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._write("sys/fs/inotify/max_user_instances", "128\n")
        self._write("key-users", KEY_USERS)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def add(
        self, pid: int, user: int, *, watchers: int = 0, timers: int = 0, queued: str = "0/64"
    ) -> None:
        """Add a process."""
        status = f"Name:\tgame\nUid:\t0\t{user}\t0\t0\nSigQ:\t{queued}\nShdPnd:\t0\n"
        self._write(f"{pid}/status", status)
        self._write(f"{pid}/timers", "ID: 0\nsignal: 14/0\nClockID: 1\n" * timers)
        descriptors = self.folder / str(pid) / "fd"
        descriptors.mkdir()
        (descriptors / "0").symlink_to("/dev/null")
        for number in range(watchers):
            (descriptors / str(number + 1)).symlink_to("anon_inode:inotify")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_counts_all_programs_of_a_user_and_names_the_session_that_holds_most(proc: Proc) -> None:
    proc.add(10, 1000, watchers=2, timers=1, queued="9/64")
    proc.add(11, 1000, watchers=3, queued="9/64")
    proc.add(20, 1000, watchers=4, timers=8, queued="9/64")
    proc.add(30, 1000, watchers=50, queued="9/64")  # of no session
    found = user_counts({"one": [10, 11], "two": [20]}, proc=proc.folder)
    assert found == (
        UserCount(1000, INOTIFY_INSTANCES, 59, 128, "one", 5),
        UserCount(1000, PENDING_SIGNALS, 9, 64, "two", 8),
        UserCount(0, KEYS, 6, 1000000),
        UserCount(1000, KEYS, 3, 200),
    )


def test_users_are_counted_apart(proc: Proc) -> None:
    proc.add(10, 0, watchers=1)
    proc.add(11, 1000, watchers=2)
    proc.add(20, 500, watchers=3)
    found = user_counts({"one": [10, 11], "two": [20]}, proc=proc.folder)
    watchers = [each for each in found if each.need is INOTIFY_INSTANCES]
    assert [(each.user, each.used, each.session) for each in watchers] == [
        (0, 1, "one"),
        (500, 3, "two"),
        (1000, 2, "one"),
    ]


def test_process_that_ended_meanwhile_is_left_out(proc: Proc) -> None:
    proc.add(10, 1000, watchers=1)
    (proc.folder / "11").mkdir()
    found = user_counts({"one": [10, 11], "two": [12]}, proc=proc.folder)
    assert found[0] == UserCount(1000, INOTIFY_INSTANCES, 1, 128, "one", 1)


def test_only_keys_are_counted_without_sessions(proc: Proc) -> None:
    proc.add(10, 1000, watchers=1)
    assert {each.need for each in user_counts({}, proc=proc.folder)} == {KEYS}


def test_user_whose_programs_ended_meanwhile_is_left_out(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two readings of /proc."""
    proc.add(10, 1000, watchers=1)
    glob = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda path, pattern: () if path == proc.folder else glob(path, pattern)
    )
    assert {each.need for each in user_counts({"one": [10]}, proc=proc.folder)} == {KEYS}
