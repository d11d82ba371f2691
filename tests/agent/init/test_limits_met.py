"""What a real init reports of the limits of its container; needs root."""

from pathlib import Path

import pytest

from agent.init.messages import Ended
from tests.support.agent.init_process import NEW_PIDS, InitProcess
from tiltyard.ends import Limit


@pytest.mark.parametrize(
    ("bytes_written", "removes", "is_full"),
    [
        (4096, "", False),
        (8192, "", True),
        (9000, "", True),
        (9000, "rm /dev/shm/data", False),  # there is room again
    ],
)
def test_reports_that_shared_memory_is_full(
    tmp_path: Path, bytes_written: int, removes: str, is_full: bool
) -> None:
    script = f"""mount -t tmpfs -o size=8192 none /dev/shm
    head -c {bytes_written} /dev/zero > /dev/shm/data
    {removes}"""
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        init.hand_over("sh", "-c", script)
        _, ended = init.left_reports()
        assert isinstance(ended, Ended)
        assert (Limit.SHM in ended.limits_met) is is_full


def test_shared_memory_without_a_limit_is_never_full(tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        init.hand_over("sh", "-c", "mount -t tmpfs -o size=0 none /dev/shm")
        _, ended = init.left_reports()
        assert isinstance(ended, Ended)
        assert ended.limits_met == ()


def test_missing_shared_memory_is_not_full(tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        init.hand_over("sh", "-c", "mount -t tmpfs none /dev && test ! -e /dev/shm")
        _, ended = init.left_reports()
        assert isinstance(ended, Ended)
        assert ended.status == 0
        assert ended.limits_met == ()


@pytest.mark.parametrize("path", ["pids.events", "pids/pids.events"])
@pytest.mark.parametrize(
    ("events", "is_met"),
    [
        ("max 0", False),
        ("max 1", True),
        ("max 90", True),
        ("", False),
        ("min 7", False),
        ("max", False),
    ],
)
def test_reports_that_processes_were_refused(
    tmp_path: Path, path: str, events: str, *, is_met: bool
) -> None:
    script = f"""mount -t tmpfs none /sys/fs/cgroup
    mkdir /sys/fs/cgroup/pids
    echo {events} > /sys/fs/cgroup/{path}"""
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        init.hand_over("sh", "-c", script)
        _, ended = init.left_reports()
        assert isinstance(ended, Ended)
        assert ended.status == 0
        assert (Limit.PIDS in ended.limits_met) is is_met
