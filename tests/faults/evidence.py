"""The page with the results of tests of faults.

Its text is written by hand; its tables, and what describes the machine, are written here.
"""

import platform
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from tests.faults.catalogue import FAULTS, NOT_YET
from tests.faults.ledger import fault_of
from tests.faults.results import Result, Results
from tests.faults.soak import PLOT, SPARE
from tests.mutants.table import exists
from tests.support.harness import ROOT

PAGE = ROOT / "docs/evidence.md"
_FAULTS = f"\n|{8 * '---|'}\n"
"""End of the header of the table of faults."""
_PARTS = f"\n|{10 * '---|'}\n"
"""End of the header of the table of parts that repeat faults elsewhere."""
_SPARE = re.compile(r"more than \d+ MB, \d+\ndescriptors")
_KERNEL = re.compile(r"with cgroups of\nversion \d, and iptables by \w+")
_ROW = re.compile(r"^\| .* \| (`([^`]+)`.* \|)$", re.MULTILINE)
_ABOUT = re.compile(r"(?:^- .*\n)+", re.MULTILINE)
_OTHER = re.compile(r"^\| (bookworm|trixie|sid|python|prepared) (\| .*)$", re.MULTILINE)
_ENGINE = {"dockerd": "Docker Engine", "containerd": "containerd", "runc": "runc"}


_Rows = dict[int, dict[str, str]]
"""Cells of the rows of tests, from the name on, by the fault's number and the test's name."""


@dataclass
class _Test:
    commit: str
    outcome: str = "passed"
    rounds: int = 0
    seeds: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    late: float = 0.0
    lost: int = 0
    checked: str = ""
    dagger: str = ""

    def add(self, result: Result) -> None:
        """Add the result of one set of parameters."""
        properties = dict(result.properties)
        if self.outcome == "passed" or result.outcome == "failed":
            self.outcome = result.outcome
        self.dagger = " †" if properties["part alone"] else ""
        self.checked = str(properties.get("checked", ""))
        self.late = max(self.late, float(str(properties.get("late", 0.0))))
        self.lost += int(str(properties.get("lost", 0)))
        self.rounds += int(str(properties.get("rounds", 1)))
        self.seeds += map(str, result.all_of("seed"))
        self.figures += map(str, result.all_of("figure"))

    def cells(self, name: str) -> str:
        """The cells of the test's row, from its name on."""
        late = [f"latest end: {self.late:.1f} s"] if self.late else []
        lost = [f"lines lost: {self.lost}"] if self.lost else []
        result = "; ".join([self.outcome, *self.figures, *late, *lost])
        shown = [f"`{name}`{self.dagger}", str(self.rounds), ", ".join(self.seeds), result]
        return " | ".join([*shown, self.checked, f"{self.commit} |"])


def write(page: Path, part: str, results: Results) -> None:
    """Create or update the page; results of other parts and tests remain."""
    text = (page if page.exists() else PAGE).read_text()
    tests: _Rows = defaultdict(dict)
    others = dict(_OTHER.findall(text))
    if part in {"rounds", "soak", "host"}:
        tests.update(_tests(results))
    else:
        others[part] = _other(results)
    for fault, name, cells in _written(text):
        tests[fault].setdefault(name, cells)
    version = 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1
    iptables = _first_line("iptables", "--version").partition("(")[2].rstrip(")") or "none"
    measured = {
        _SPARE: f"more than {SPARE.memory} MB, {SPARE.descriptors}\ndescriptors",
        _KERNEL: f"with cgroups of\nversion {version}, and iptables by {iptables}",
        _rows_below(_FAULTS): "".join(
            line for fault in FAULTS for line in _rows(fault, tests[fault])
        ),
        _rows_below(_PARTS): "".join(f"| {name} {row}\n" for name, row in sorted(others.items())),
    }
    if part == "rounds":
        measured[_ABOUT] = "".join(f"- {name}: {value}\n" for name, value in _versions())
    for place, written in measured.items():
        text, count = place.subn(written.replace("\\", r"\\"), text, count=1)
        assert count, f"the page has no {place.pattern}"
    page.write_text(text)
    if part == "soak" and PLOT.exists():
        page.with_name("soak.svg").write_text(PLOT.read_text())


def _rows_below(head: str) -> re.Pattern[str]:
    return re.compile(rf"(?<={re.escape(head)})(?:\|.*\n)*")


def _tests(results: Results) -> _Rows:
    tests: dict[int, dict[str, _Test]] = defaultdict(
        lambda: defaultdict(lambda: _Test(results.commit))
    )
    for result in results.latest().values():
        path, _, name = result.test.partition("::")
        if (fault := fault_of(name)) is not None:
            tests[fault][f"{path}::{name.partition('[')[0]}"].add(result)
    return {
        fault: {name: test.cells(name) for name, test in found.items()}
        for fault, found in tests.items()
    }


def _other(results: Results) -> str:
    """Return the cells of a part's row, without its name."""
    latest = results.latest().values()
    ends = Counter(result.outcome for result in latest)
    versions = [_number(_first_line(name, "--version")) for name in _ENGINE]
    numbers = [ends["passed"], ends["failed"], ends["skipped"]]
    date = max((result.date for result in latest), default="")
    cells = [*versions, platform.python_version(), *numbers, date, results.commit]
    return f"| {' | '.join(map(str, cells))} |"


def _rows(fault: int, tests: Mapping[str, str]) -> Iterator[str]:
    if not tests:
        why = NOT_YET.get(fault, "did not run")
        yield f"| F{fault:02} | {FAULTS[fault]} | none: {why} | | | | | |\n"
    first = f"F{fault:02} | {FAULTS[fault]}"
    for cells in tests.values():
        yield f"| {first} | {cells}\n"
        first = " | "


def _written(page: str) -> Iterator[tuple[int, str, str]]:
    """Return the tests of an existing page: fault, name and cells."""
    for cells, name in _ROW.findall(page):
        fault = fault_of(name.partition("::")[2])
        if fault is not None and exists(name, ROOT):
            yield fault, name, cells


def _number(version: str) -> str:
    """Return the number in a program's version text."""
    found = re.search(r"\d+\.\d+[\w.+~-]*", version)
    return found[0] if found else "unknown"


def _versions() -> Iterable[tuple[str, str]]:
    yield "date", datetime.now(UTC).strftime("%Y-%m-%d")
    yield "machine", f"{platform.machine()}, Linux {platform.release()}"
    for program, name in _ENGINE.items():
        yield name, _first_line(program, "--version")
    packages = [f"{name} {metadata.version(name)}" for name in ("grpcio", "aiohttp", "docker")]
    yield "Python", ", ".join([platform.python_version(), *packages])


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.partition("\n")[0]
