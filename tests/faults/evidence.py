"""The page that says what a run of the faults' tests has shown."""

import platform
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

from tests.faults.catalogue import FAULTS, NOT_YET
from tests.faults.ledger import fault_of
from tests.support.harness import ROOT

_PAGE = """\
# Evidence

This page has the results of `make test-faults`, which writes it. Each row is from the latest run
of its test, at the given commit; `PYTEST_ARGS="-k f24"` updates the rows of F24. The
[invariants](#invariants) in the column "checked" are checked after each test; tests marked with †
test one component without a host. "latest end" is the longest delay of a lifetime's end, with the
grace period and the time without an agent included. "lines lost" are those that a killed engine
had read and not written. Random choices derive from the seed: `--seed` repeats them.

{about}

| fault | | tests | rounds | seed | result | checked | commit |
|---|---|---|---|---|---|---|---|
{rows}

## Invariants

| | |
|---|---|
| I1 | every container of the agent has one record, and everything that a record lists exists |
| I2 | reserved, published and forwarded ports are the same, and none is in use twice |
| I3 | a running session has its process, an ended one has none |
| I4 | no lifetime ends early, or more than 10 s and the grace period late |
| I5 | a stopped session does not start again; the number of restarts never decreases |
| I6 | every session whose start returned success is visible |
| I7 | an id has one session at a time |
| I8 | a sealed log has every line of the game once and in order, the first and last included |
| I9 | no account uses more than its quota |
| I10 | no account sees another's sessions; a revoked token is rejected |
| I11 | the agent removes its containers; links, rules, mounts, cgroups and spool are as before |

## What is not covered

Where a fault has no test, the table says why. All tests ran on one machine, with cgroups of
{cgroups}, and iptables by {iptables}; systemd did not run. The machine's
kernel has neither storage quotas nor AppArmor. A power cut is emulated for the control plane's
database and for the state directory of an agent, by removing everything from their files that was
not synced. In other tests, processes are killed, and disks are filled, made read-only and removed,
but no completed write is undone.
"""


_ROW = re.compile(
    r"\| .* \| `(?P<name>[^`]+)`(?P<part> †)? \| (?P<rounds>\d+) \| (?P<seeds>[\d, ]*) \|"
    r" (?P<outcome>\w+)(?:; (?P<figures>[^|]*))? \| (?P<checked>[^|]*) \| (?P<commit>\S+) \|"
)


@dataclass
class _Test:
    outcome: str = "passed"
    rounds: int = 0
    seeds: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    late: float = 0.0
    lost: int = 0
    checked: str = ""
    is_part: bool = False
    commit: str = ""


class Evidence:
    """Collects how tests of faults ended."""

    def __init__(self) -> None:
        self._tests: dict[int, dict[str, _Test]] = defaultdict(lambda: defaultdict(_Test))
        self._commit = _commit()

    def add(self, report: pytest.TestReport) -> None:
        """Take note of one phase of a test."""
        # Where several processes run tests, a group's name follows that of the test.
        path, _, name = report.nodeid.partition("@")[0].partition("::")
        fault = fault_of(name)
        if fault is None:
            return
        test = self._tests[fault][f"{path}::{name.partition('[')[0]}"]
        test.commit = self._commit
        test.is_part = "part_alone" in report.keywords
        if report.failed:
            test.outcome = "failed"
        elif report.skipped and test.outcome == "passed":
            test.outcome = "skipped"
        if report.when == "teardown":
            properties = dict(report.user_properties)
            test.checked = str(properties["checked"])
            test.late = max(test.late, float(str(properties["late"])))
            test.lost += int(str(properties["lost"]))
            test.rounds += int(str(properties.get("rounds", 1)))
            test.seeds += [str(properties["seed"])] if "seed" in properties else []
            test.figures += [str(v) for name, v in report.user_properties if name == "figure"]

    def write(self, page: Path) -> None:
        """Write the page; what did not run now stays as it was."""
        for fault, name, test in _written(page):
            self._tests[fault].setdefault(name, test)
        rows = "\n".join(line for fault in FAULTS for line in self._rows(fault))
        about = "\n".join(f"- {name}: {value}" for name, value in _versions())
        is_unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        cgroups = "version 2" if is_unified else "version 1"
        iptables = _first_line("iptables", "--version").partition("(")[2].rstrip(")") or "none"
        page.write_text(_PAGE.format(about=about, rows=rows, cgroups=cgroups, iptables=iptables))

    def _rows(self, fault: int) -> Iterator[str]:
        tests: Mapping[str, _Test] = self._tests.get(fault, {})
        if not tests:
            why = NOT_YET.get(fault, "did not run")
            yield f"| F{fault:02} | {FAULTS[fault]} | none: {why} | | | | | |"
        first = f"F{fault:02} | {FAULTS[fault]}"
        for name, test in tests.items():
            dagger = " †" if test.is_part else ""
            late = [f"latest end: {test.late:.1f} s"] if test.late else []
            lost = [f"lines lost: {test.lost}"] if test.lost else []
            result = "; ".join([test.outcome, *test.figures, *late, *lost])
            seeds = ", ".join(test.seeds)
            shown = f"{test.rounds} | {seeds} | {result} | {test.checked} | {test.commit}"
            yield f"| {first} | `{name}`{dagger} | {shown} |"
            first = " | "


def _written(page: Path) -> Iterator[tuple[int, str, _Test]]:
    """The tests of a page that was written before: their fault, their name, what they showed."""
    if not page.exists():
        return
    for row in page.read_text().splitlines():
        found = _ROW.fullmatch(row)
        fault = fault_of(found["name"].partition("::")[2]) if found else None
        if found and fault is not None and _exists(found["name"]):
            yield (
                fault,
                found["name"],
                _Test(
                    outcome=found["outcome"],
                    rounds=int(found["rounds"]),
                    seeds=list(filter(None, found["seeds"].split(", "))),
                    figures=list(filter(None, (found["figures"] or "").split("; "))),
                    checked=found["checked"],
                    is_part=bool(found["part"]),
                    commit=found["commit"],
                ),
            )


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    module = ROOT / path
    return module.is_file() and f"def {name}(" in module.read_text()


def _commit() -> str:
    return _first_line("git", "describe", "--always", "--dirty")


def _versions() -> Iterable[tuple[str, str]]:
    yield "date", datetime.now(UTC).strftime("%Y-%m-%d")
    yield "machine", f"{platform.machine()}, Linux {platform.release()}"
    yield "Docker Engine", _first_line("dockerd", "--version")
    yield "containerd", _first_line("containerd", "--version")
    yield "runc", _first_line("runc", "--version")
    packages = [f"{name} {metadata.version(name)}" for name in ("grpcio", "aiohttp", "docker")]
    yield "Python", ", ".join([platform.python_version(), *packages])


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.partition("\n")[0]
