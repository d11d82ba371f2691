import os
from pathlib import Path

import pytest

from agent.domain.host.kernel_limits import UNLIMITED, KernelLimits
from agent.domain.sessions.session import Process
from agent.kernel.limits import changed_limits, limits_of, read_limits
from agent.kernel.processes import live_process

V1 = "".join(
    f"{number}:{name}:/docker/c1\n"
    for number, name in enumerate(("pids", "cpu,cpuacct", "memory"))
)
V2 = "0::/system.slice/docker-c1.scope\n"


def files(root: Path, folder: str, contents: dict[str, str]) -> None:
    """Write the files of a control group."""
    for name, text in contents.items():
        path = root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def v1(root: Path, memory: str, both: str, quota: str, pids: str) -> None:
    texts = {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": both}
    files(root, "memory/docker/c1", {name: text for name, text in texts.items() if text})
    files(root, "cpu/docker/c1", {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000\n"})
    files(root, "pids/docker/c1", {"pids.max": pids})


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (("4096\n", "4096\n", "150000\n", "512\n"), KernelLimits(4096, 0, 1.5, 512)),
        (("4096\n", "12288\n", "-1\n", "max\n"), KernelLimits(4096, 8192, UNLIMITED, UNLIMITED)),
        (("4096\n", "", "1000\n", "1\n"), KernelLimits(4096, None, 0.01, 1)),
        (
            ("9223372036854771712\n", "9223372036854771712\n", "x", ""),
            KernelLimits(UNLIMITED, UNLIMITED, None, None),
        ),
    ],
)
def test_reads_version_1(
    tmp_path: Path, written: tuple[str, str, str, str], found: KernelLimits
) -> None:
    v1(tmp_path, *written)
    assert limits_of(V1, tmp_path) == found


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (("4096\n", "0\n", "150000 100000\n", "512\n"), KernelLimits(4096, 0, 1.5, 512)),
        (
            ("max\n", "max\n", "max 100000\n", "max\n"),
            KernelLimits(UNLIMITED, UNLIMITED, UNLIMITED, UNLIMITED),
        ),
        (("", "no\n", "1 0\n", "\n"), KernelLimits()),
    ],
)
def test_reads_version_2(
    tmp_path: Path, written: tuple[str, str, str, str], found: KernelLimits
) -> None:
    names = ("memory.max", "memory.swap.max", "cpu.max", "pids.max")
    group = "system.slice/docker-c1.scope"
    files(tmp_path, group, dict(zip(names, written, strict=True)))
    assert limits_of(V2, tmp_path) == found


@pytest.mark.parametrize("groups", ["", "0::/\n", "4:memory:/\n3:pids:/\n", V1, V2])
def test_limits_of_the_root_group_or_without_files_are_unknown(
    tmp_path: Path, groups: str
) -> None:
    assert limits_of(groups, tmp_path) == KernelLimits()


def test_process_that_has_ended_has_no_limits() -> None:
    me = live_process(os.getpid())
    assert me is not None
    assert read_limits(me) is not None
    ended = Process(me.pid, me.start_ticks + 1)
    assert read_limits(ended) is None
    assert changed_limits({ended: KernelLimits(memory=1)}) == {}
