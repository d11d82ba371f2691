"""Reports benchmark results, with machine and versions, as JSON and on the docs page.

The history next to the page has the figures of earlier runs, which the page compares.
"""

import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.support.harness import ROOT

RESULTS = ROOT / "bench" / "results.json"
PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- written by make bench -->"
END = "<!-- by hand again -->"
RUNS = 3
COMMITS = 4
"""The newest runs of a commit, and the newest commits of a figure, that the history keeps."""
AT_THE_GOAL = 0.05  # A figure this close to its goal, relatively, neither meets nor misses it
_HEAD = (
    "| figure | value | goal | date | commit | 1 before | 2 before | 3 before |\n"
    "|---|---|---|---|---|---|---|---|\n"
)
_History = dict[str, dict[str, Any]]
"""By name: unit and goal of a figure, and its `runs`, oldest first: date, commit and value."""


@dataclass(frozen=True)
class Result:
    """One figure, a median if measured repeatedly. `least` and `most` are its goal, if any."""

    name: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def goal(self) -> str:
        """The goal as text, empty without one; says if the figure is at the goal."""
        if self.least is None and self.most is None:
            return ""
        goal = f"at most {self.most:g}" if self.least is None else f"at least {self.least:g}"
        return f"{goal}: at the goal" if self._is_close else goal

    @property
    def misses(self) -> bool:
        """Whether the goal is missed by more than AT_THE_GOAL."""
        short = self.least is not None and self.value < self.least
        return not self._is_close and (short or (self.most is not None and self.value > self.most))

    @property
    def _is_close(self) -> bool:
        goal = self.most if self.least is None else self.least
        return bool(goal and abs(self.value / goal - 1) <= AT_THE_GOAL)


def write(results: Sequence[Result], file: Path = RESULTS, page: Path | None = None) -> None:
    """Write the figures to a file, and to the page and its history."""
    content: dict[str, Any] = {
        "machine": _machine(),
        "versions": _versions(),
        "commit": _commit(),
        "results": [asdict(result) for result in results],
    }
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n")
    if page is not None:
        past = page.with_suffix(".json")
        history = with_runs(json.loads(past.read_text()), results, content["commit"])
        rows = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in history.items())
        past.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        page.write_text(with_figures(page.read_text(), history, content))


def with_runs(history: _History, results: Sequence[Result], commit: str) -> _History:
    """Return the history with one more run of these figures, without what is too old."""
    history = dict(history)
    today = datetime.now(tz=UTC).date().isoformat()
    for one in results:
        facts = asdict(one)
        name = facts.pop("name")
        value = facts.pop("value")
        runs = [*history.get(name, {"runs": []})["runs"], [today, commit, value]]
        kept = [run for found in _by_commit(runs)[:COMMITS] for run in found[-RUNS:]]
        history[name] = facts | {"runs": sorted(kept, key=runs.index)}
    return history


def with_figures(page: str, history: _History, content: Mapping[str, Any]) -> str:
    """Return the page with the figures of this history."""
    before, _, rest = page.partition(BEGIN)
    machine = ", ".join(f"{name} {reported}" for name, reported in content["machine"].items())
    versions = ", ".join(f"{name} {reported}" for name, reported in content["versions"].items())
    facts = f"- machine: {machine}\n- versions: {versions}\n"
    rows = "\n".join(_row(name, **found) for name, found in history.items())
    return f"{before}{BEGIN}\n\n{facts}\n{_HEAD}{rows}\n\n{END}{rest.partition(END)[2]}"


def _row(name: str, runs: list[list[Any]], unit: str, **goal: float) -> str:
    newest, *older = _by_commit(runs)
    values = [value for _, _, value in newest]
    one = Result(name, statistics.median(values), unit, **goal)
    spread = f" ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else ""
    value = f"{one.value:.4g} {unit}{spread}"
    reported = f"**{value}**" if one.misses else value
    past = [f"{statistics.median(run[2] for run in each):.4g} ({each[0][1]})" for each in older]
    cells = [f"`{name}`", reported, one.goal, *newest[-1][:2], *past, *[""] * (3 - len(past))]
    return f"| {' | '.join(cells)} |"


def _by_commit(runs: Sequence[list[Any]]) -> list[list[list[Any]]]:
    """Return the runs of each commit, of the newest run first."""
    commits = dict.fromkeys(commit for _, commit, _ in reversed(runs))
    return [[run for run in runs if run[1] == commit] for commit in commits]


def table(results: Sequence[Result]) -> str:
    """Format the figures, one per line."""
    width = max(len(result.name) for result in results)
    return "\n".join(
        f"{one.name:{width}}  {one.value:10.2f} {one.unit:7} {one.goal}"
        + ("  MISSED" if one.misses else "")
        for one in results
    )


def _machine() -> dict[str, object]:
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_mib": memory // 2**20,
        "kernel": platform.release(),
    }


def _versions() -> dict[str, str]:
    programs = {"docker_engine": "dockerd", "containerd": "containerd", "runc": "runc"}
    return {
        **{name: _version(program, "--version") for name, program in programs.items()},
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("aiohttp", "grpcio", "docker", "tiltyard")},
    }


def _version(*command: str) -> str:
    """Return the first version number in a program's output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"[0-9]+(?:\.[0-9]+)+\S*", done.stdout)
    return found[0].rstrip(",") if found else "unknown"


def _commit() -> str:
    """Return the commit, with `+` if more than the figures differs from it."""
    figures = (f":!{PAGE.relative_to(ROOT)}", f":!{PAGE.with_suffix('.json').relative_to(ROOT)}")
    changed = _git("status", "--porcelain", "--", ".", *figures)
    return (_git("rev-parse", "--short=7", "HEAD") or "unknown") + ("+" if changed else "")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
