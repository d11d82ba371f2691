"""The page that says what a run of the faults' tests has shown."""

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

_PAGE = """\
# Evidence

This page has the results of `make test-faults` and `make test-host`, which write it. Each row is
from the latest run of its test, at the given commit; `PART=rounds PYTEST_ARGS="-k f24"` updates
the rows of F24. The [invariants](#invariants) in the column "checked" are checked after each
test; tests marked with † test one component without a host. "latest end" is the longest delay of
a lifetime's end, with the grace period and the time without an agent included. "lines lost" are
those that a killed engine had read and not written. Random choices derive from the seed: `--seed`
repeats them.

{about}

| fault | | tests | rounds | seed | result | checked | commit |
|---|---|---|---|---|---|---|---|
{rows}

## Other engines and Pythons

The parts `bookworm`, `trixie` and `sid` run the tests of contracts, of Docker and of faults on the
engine of that Debian, each fault a few times. The part `python` runs all tests on the newest
supported Python. Skipped tests need what this machine or engine does not have.

| part | Docker Engine | containerd | runc | Python | passed | failed | skipped | date | commit |
|---|---|---|---|---|---|---|---|---|---|
{others}

## Soak

The test of F53 runs for half an hour in `make test-faults`, and longer in `make soak HOURS=24`. A
host with a real engine and one with an engine in memory belong to one control plane. In each round
callers start up to 20 and 500 sessions, of which some claim standbys, and then start, stop and
read at random while the first host's agent, its engine and the control plane are killed; the agent
of the second host is never killed. Then callers' answers are compared with what runs, all sessions
are ended, the invariants are checked, and the programs are measured: their memory, descriptors,
and files except those of ended sessions. The medians of the first fifth of the rounds, after the
first tenth, and of the last fifth are in the row of F53; more than {memory} MB, {descriptors}
descriptors or a file in addition fail it.

An engine that is killed while it starts or stops a container may leave links and firewall rules,
and may keep the container's ports from being used until it starts again. The soak removes these
before it checks the invariants; the row of F53 has the numbers. If containerd had started the
container meanwhile, the agent ends that run; an engine 20.10 then writes each line of the log of a
session's next run twice.

![Memory, descriptors and files of the programs after each round](soak.svg)

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

## A whole machine

The tests in `tests/host` ran on a Debian 13 with its own kernel, systemd, cgroups of version 2,
AppArmor and Docker Engine, emulated by QEMU at a fraction of the speed of a real machine. The
programs were installed by the commands of [First steps](operations.md#first-steps), with a
registry that requires a password. Its power is cut by killing QEMU: everything is lost that the
system had not flushed to its disk. "served again after" is the time from power-on until all
services were started.

## What is not covered

Where a fault has no test, the table says why. All other tests ran on one machine, with cgroups of
{cgroups}, and iptables by {iptables}; systemd did not run. The machine's kernel has neither
storage quotas nor AppArmor. In these tests, a power cut is emulated for the control plane's
database and for the state directory of an agent, by removing everything from their files that
was not synced; processes are killed, and disks are filled, made read-only and removed, but no
completed write is undone.
"""


_ROW = re.compile(
    r"\| .* \| `(?P<name>[^`]+)`(?P<part> †)? \| (?P<rounds>\d+) \| (?P<seeds>[\d, ]*) \|"
    r" (?P<outcome>\w+)(?:; (?P<figures>[^|]*))? \| (?P<checked>[^|]*) \| (?P<commit>\S+) \|"
)
_ABOUT = re.compile(r"^- .*$", re.MULTILINE)
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
    """Write the page; what is of other parts and tests stays as it was."""
    written = page.read_text() if page.exists() else ""
    tests: _Tests = defaultdict(dict)
    others = dict(_OTHER.findall(written))
    about = _ABOUT.findall(written)
    if part in {"rounds", "soak", "host"}:
        tests.update(_tests(results))
    if part == "rounds":
        about = [f"- {name}: {value}" for name, value in _versions()]
    elif part not in {"soak", "host"}:
        others[part] = _other(results)
    if part == "soak" and PLOT.exists():
        page.with_name("soak.svg").write_text(PLOT.read_text())
    for fault, name, test in _written(written):
        tests[fault].setdefault(name, test)
    is_unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    iptables = _first_line("iptables", "--version").partition("(")[2].rstrip(")") or "none"
    page.write_text(
        _PAGE.format(
            about="\n".join(about),
            rows="\n".join(line for fault in FAULTS for line in _rows(fault, tests[fault])),
            others="\n".join(f"| {name} {row}" for name, row in sorted(others.items())),
            cgroups="version 2" if is_unified else "version 1",
            iptables=iptables,
            memory=SPARE.memory,
            descriptors=SPARE.descriptors,
        )
    )


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
