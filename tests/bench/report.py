"""Reports benchmark results, with machine and versions, as JSON and on the docs page."""

import json
import os
import platform
import re
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
BEGIN, END = "<!-- written by make bench -->", "<!-- by hand again -->"
_HEAD = "| figure | value | goal | date | commit |\n|---|---|---|---|---|\n"


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
        """The goal as text, empty without one."""
        if self.least is not None:
            return f"at least {self.least:g}"
        return "" if self.most is None else f"at most {self.most:g}"

    @property
    def misses(self) -> bool:
        """Whether the goal is missed."""
        short = self.least is not None and self.value < self.least
        return short or (self.most is not None and self.value > self.most)


def write(results: Sequence[Result], file: Path = RESULTS, page: Path | None = None) -> None:
    """Write the figures to a file and to the page, which keeps figures that were not measured."""
    content = {
        "machine": _machine(),
        "versions": _versions(),
        "commit": _commit(),
        "results": [asdict(result) for result in results],
    }
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n")
    if page is not None:
        page.write_text(with_figures(page.read_text(), results, content))


def with_figures(page: str, results: Sequence[Result], content: Mapping[str, Any]) -> str:
    """Return the page with these figures instead of older ones."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    rows = {line.split("`")[1]: line for line in old.splitlines() if line.startswith("| `")} | {
        one.name: _row(one, content["commit"]) for one in results
    }
    machine = ", ".join(f"{name} {reported}" for name, reported in content["machine"].items())
    versions = ", ".join(f"{name} {reported}" for name, reported in content["versions"].items())
    facts = f"- machine: {machine}\n- versions: {versions}\n"
    table = _HEAD + "\n".join(rows.values())
    return f"{before}{BEGIN}\n\n{facts}\n{table}\n\n{END}{after}"


def _row(one: Result, commit: str) -> str:
    value = f"{one.value:.4g} {one.unit}"
    reported = f"**{value}**" if one.misses else value
    today = datetime.now(tz=UTC).date().isoformat()
    return f"| `{one.name}` | {reported} | {one.goal} | {today} | {commit[:7]}{commit[40:]} |"


def table(results: Sequence[Result]) -> str:
    """Format the figures, one per line."""
    width = max(len(result.name) for result in results)
    return "\n".join(
        f"{one.name:{width}}  {one.value:10.2f} {one.unit:7} {one.goal}"
        + ("  MISSED" if one.misses else "")
        for one in results
    )


def _machine() -> dict[str, object]:
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_mib": memory // 2**20,
        "kernel": platform.release(),
    }


def _versions() -> dict[str, str]:
    programs = {
        "docker_engine": ("dockerd", "--version"),
        "containerd": ("containerd", "--version"),
        "runc": ("runc", "--version"),
    }
    return {
        **{name: _version(*command) for name, command in programs.items()},
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("aiohttp", "grpcio", "docker", "tiltyard")},
    }


def _version(*command: str) -> str:
    """Return the first version number in a program's output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"[0-9]+(?:\.[0-9]+)+\S*", done.stdout)
    return found[0].rstrip(",") if found else "unknown"


def _commit() -> str:
    """Return the commit, with `+` if the working tree is dirty."""
    done = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
