"""The page that says what a run of the faults' tests has shown.

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
from tests.support.harness import ROOT

PAGE = ROOT / "docs/evidence.md"
_FAULTS, _PARTS = (f"\n|{columns * '---|'}\n" for columns in (8, 10))
"""The ends of the heads of both tables: of faults, and of other engines and Pythons."""
_SPARE = re.compile(r"more than \d+ MB, \d+\ndescriptors")
_KERNEL = re.compile(r"with cgroups of\nversion \d, and iptables by \w+")
_ROW = re.compile(
    r"\| .* \| `(?P<name>[^`]+)`(?P<part> †)? \| (?P<rounds>\d+) \| (?P<seeds>[\d, ]*) \|"
    r" (?P<outcome>\w+)(?:; (?P<figures>[^|]*))? \| (?P<checked>[^|]*) \| (?P<commit>\S+) \|"
)
_ABOUT = re.compile(r"(?:^- .*\n)+", re.MULTILINE)
_OTHER = re.compile(r"^\| (bookworm|trixie|sid|python) (\| .*)$", re.MULTILINE)
_ENGINE = {"dockerd": "Docker Engine", "containerd": "containerd", "runc": "runc"}


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

    def add(self, result: Result) -> None:
        """Add the result of one set of parameters."""
        properties = dict(result.properties)
        if self.outcome == "passed" or result.outcome == "failed":
            self.outcome = result.outcome
        self.is_part = bool(properties["part alone"])
        self.checked = str(properties.get("checked", ""))
        self.late = max(self.late, float(str(properties.get("late", 0.0))))
        self.lost += int(str(properties.get("lost", 0)))
        self.rounds += int(str(properties.get("rounds", 1)))
        self.seeds += map(str, result.all_of("seed"))
        self.figures += map(str, result.all_of("figure"))


_Tests = dict[int, dict[str, _Test]]


def write(page: Path, part: str, results: Results) -> None:
    """Write the page, or a new one; what is of other parts and tests stays as it was."""
    text = (page if page.exists() else PAGE).read_text()
    tests: _Tests = defaultdict(dict)
    others = dict(_OTHER.findall(text))
    if part in {"rounds", "soak", "host"}:
        tests.update(_tests(results))
    else:
        others[part] = _other(results)
    if part == "soak" and PLOT.exists():
        page.with_name("soak.svg").write_text(PLOT.read_text())
    for fault, name, test in _written(text):
        tests[fault].setdefault(name, test)
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


def _rows_below(head: str) -> re.Pattern[str]:
    return re.compile(rf"(?<={re.escape(head)})(?:\|.*\n)*")


def _tests(results: Results) -> _Tests:
    tests: _Tests = defaultdict(lambda: defaultdict(_Test))
    for result in results.latest().values():
        path, _, name = result.test.partition("::")
        fault = fault_of(name)
        if fault is not None:
            test = tests[fault][f"{path}::{name.partition('[')[0]}"]
            test.commit = results.commit
            test.add(result)
    return tests


def _other(results: Results) -> str:
    """What a part has shown, without its name."""
    latest = results.latest().values()
    ends = Counter(result.outcome for result in latest)
    versions = [_number(_first_line(name, "--version")) for name in _ENGINE]
    numbers = [ends["passed"], ends["failed"], ends["skipped"]]
    date = max((result.date for result in latest), default="")
    cells = [*versions, platform.python_version(), *numbers, date, results.commit]
    return f"| {' | '.join(map(str, cells))} |"


def _rows(fault: int, tests: Mapping[str, _Test]) -> Iterator[str]:
    if not tests:
        why = NOT_YET.get(fault, "did not run")
        yield f"| F{fault:02} | {FAULTS[fault]} | none: {why} | | | | | |\n"
    first = f"F{fault:02} | {FAULTS[fault]}"
    for name, test in tests.items():
        dagger = " †" if test.is_part else ""
        late = [f"latest end: {test.late:.1f} s"] if test.late else []
        lost = [f"lines lost: {test.lost}"] if test.lost else []
        result = "; ".join([test.outcome, *test.figures, *late, *lost])
        seeds = ", ".join(test.seeds)
        shown = f"{test.rounds} | {seeds} | {result} | {test.checked} | {test.commit}"
        yield f"| {first} | `{name}`{dagger} | {shown} |\n"
        first = " | "


def _written(page: str) -> Iterator[tuple[int, str, _Test]]:
    """The tests of a page that was written before: their fault, their name, what they showed."""
    for row in page.splitlines():
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


def _number(version: str) -> str:
    """The number in what a program says of its version."""
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
