"""The results of tests, written one by one, so that an interrupted run can resume.

A line of `build/results/<commit>/<engine>-<python>-<long|short>.jsonl` is the end of one test; the
latest line of a test counts. The part `prepared` has a file of its own, since its agents differ.
Changes that are not committed are no commit: they have no file.
"""

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest

ALREADY_PASSED = "already passed"
RECORDER = "tiltyard-recorder"  # The name of a Recorder among the plugins of a session
WRITTEN = ("docs/evidence.md", "docs/soak.svg")  # A run changes these, which is no other commit


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a test: "passed", "failed" or "skipped", and the properties of its report."""

    test: str
    outcome: str
    date: str
    seconds: float
    properties: Sequence[tuple[str, object]]

    def all_of(self, name: str) -> list[object]:
        """The values of a property, which may have several."""
        return [value for each, value in self.properties if each == name]


class Results:
    """The file with the results of one commit on one engine and Python, created when needed."""

    def __init__(self, root: Path, commit: str, *, is_long: bool) -> None:
        debian = platform.freedesktop_os_release().get("VERSION_CODENAME", "unknown")
        engine = os.environ.get("TILTYARD_TEST_ENGINE") or debian
        python = ".".join(platform.python_version_tuple()[:2])
        form = "long" if is_long else "short"
        agents = "-prepared" if os.environ.get("TILTYARD_TEST_PREPARED") else ""
        self.commit = commit
        self.path = root / f"build/results/{commit}/{engine}-{python}-{form}{agents}.jsonl"

    def add(self, result: Result) -> None:
        """Append a line, which stays when this process is killed."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")

    def latest(self) -> dict[str, Result]:
        """The latest result of each test."""
        return {result.test: result for result in self._read()}

    def passed(self) -> list[str]:
        """The tests whose latest result is that they passed."""
        return [test for test, result in self.latest().items() if result.outcome == "passed"]

    def _read(self) -> Iterator[Result]:
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            try:
                fields = json.loads(line)
            except ValueError:  # cut off by a full disk or a power cut
                continue
            properties = [(name, value) for name, value in fields.pop("properties")]
            yield Result(**fields, properties=properties)


def commit_of(root: Path) -> str:
    """The commit of a working tree; empty if it has other changes than those of a run."""
    others = [f":!{path}" for path in WRITTEN]
    try:
        if _git(root, "status", "--porcelain", "--untracked-files=all", "--", ".", *others):
            return ""
        return _git(root, "describe", "--always").strip()
    except (OSError, subprocess.SubprocessError):
        return ""


class Recorder:
    """A plugin of pytest, in the process that gets all reports: adds them to the results."""

    def __init__(self, results: Results, *, again: bool) -> None:
        self._results = results
        self.leave_out = [] if again else results.passed()
        """The tests that passed, which do not run again."""
        self._outcomes: dict[str, str] = {}
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Make all processes skip the same tests, including processes that replace others."""
        node.workerinput["leave_out"] = self.leave_out

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of a test, and write its result."""
        if ALREADY_PASSED in dict(report.user_properties):
            return
        test = test_of(report.nodeid)
        if not report.passed and self._outcomes.get(test) != "failed":
            self._outcomes[test] = report.outcome
        self._seconds[test] = self._seconds.get(test, 0.0) + report.duration
        if report.when in {"setup", "call"}:
            return
        properties = [*report.user_properties, ("part alone", "part_alone" in report.keywords)]
        self._results.add(
            Result(
                test,
                self._outcomes.pop(test, "passed"),
                datetime.now(UTC).strftime("%Y-%m-%d"),
                round(self._seconds.pop(test), 2),
                properties,
            )
        )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Replace the tests that passed by items that do nothing."""
    recorder = config.pluginmanager.get_plugin(RECORDER)
    given = getattr(config, "workerinput", {}).get("leave_out", ())
    passed = frozenset(recorder.leave_out if isinstance(recorder, Recorder) else given)
    items[:] = [
        AlreadyPassed.of(item) if test_of(item.nodeid) in passed else item for item in items
    ]


class AlreadyPassed(pytest.Item):
    """Replaces a test that passed at this commit."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.user_properties.append((ALREADY_PASSED, True))

    @classmethod
    def of(cls, test: pytest.Item) -> Self:
        """Return the replacement of a test."""
        assert test.parent is not None, "only a session has no parent"
        made: Self = cls.from_parent(test.parent, name=test.name)
        return made

    def runtest(self) -> None:
        """Do nothing."""


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Count skipped tests separately."""
    if report.when == "call" and ALREADY_PASSED in dict(report.user_properties):
        return ALREADY_PASSED, "=", "ALREADY PASSED"
    return None


def test_of(node_id: str) -> str:
    """The id of a test without the group that pytest-xdist adds to it."""
    return re.sub(r"@[^]]*$", "", node_id)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=30
    ).stdout
