import re
from pathlib import Path

from agent.domain.host.kernel_needs import CONNTRACK, NEEDS, PENDING_SIGNALS, KernelNeed

ROOT = Path(__file__).resolve().parents[5]
ALL = (*NEEDS, CONNTRACK, PENDING_SIGNALS)
OF_MACHINE = {"kernel.pid_max", "kernel.threads-max"}  # systemd and the memory determine them


def test_a_value_suffices_for_the_sessions_that_need_it() -> None:
    need = KernelNeed("a.b", per_session=3, reserve=10, lack="")
    assert need.least(5) == 25
    assert need.sessions(25) == 5
    assert need.sessions(24) == 4
    assert need.sessions(9) == 0


def test_an_installation_sets_enough_for_1000_sessions() -> None:
    text = (ROOT / "systemd" / "tiltyard-agent.sysctl").read_text("utf-8")
    written = {name: int(value) for name, value in re.findall(r"(?m)^-(\S+) = (\d+)$", text)}
    wanted = {need.setting for need in NEEDS} - OF_MACHINE
    assert written.keys() - wanted == {"net.ipv4.neigh.default.gc_thresh2"}
    for need in NEEDS:
        if need.setting in wanted:
            assert written[need.setting] >= need.least(1000), need.setting


def test_each_need_is_documented_with_its_numbers() -> None:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = text.split("\n### What sessions need of the kernel\n", 1)[1].split("\n##", 1)[0]
    rows = re.findall(r"(?m)^\| `([^`]+)`[^|]*\| (\d+) \| ([\d,]+) \|", section)
    found = {name: (int(each), int(host.replace(",", ""))) for name, each, host in rows}
    assert found == {need.setting: (need.per_session, need.reserve) for need in ALL}
