"""A pytest plugin: long forms of tests of faults, seeds, and a page of results.

A test named `test_fNN_…` is one of fault FNN of `catalogue.py`, and marked `fault`. `make
test-faults` runs each as often as promised (`--long`), keeps how each test ended (`--part`), and
writes a page of it (`--evidence FILE`).
"""

import random
from collections.abc import Callable, Generator
from pathlib import Path
from random import Random

import pytest

from tests.faults import evidence
from tests.faults.ledger import fault_of, ledger
from tests.faults.results import RECORDER, AlreadyPassed, Recorder, Results, commit_of

Rounds = Callable[[int, int], int]
Figure = Callable[[str, object], None]

_PASSED = pytest.StashKey[bool]()
_RESULTS = pytest.StashKey[Results]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the long form."""
    group = parser.getgroup("faults")
    group.addoption("--part", help="keep how tests end, and run none that passed at this commit")
    group.addoption("--again", action="store_true", help="run also what passed at this commit")
    group.addoption("--evidence", type=Path, help="write what the tests of this part showed")
    group.addoption("--long", action="store_true", help="run each fault as often as promised")
    group.addoption("--minutes", type=float, help="how long to soak, instead of as promised")
    group.addoption("--seed", type=int, help="what chance begins with, as a failed run printed it")


def pytest_configure(config: pytest.Config) -> None:
    """Record the results of tests, in the process that gets all reports."""
    if not config.option.part or config.option.collectonly or hasattr(config, "workerinput"):
        return
    if commit := commit_of(config.rootpath):
        config.stash[_RESULTS] = Results(config.rootpath, commit, is_long=config.option.long)
        config.pluginmanager.register(
            Recorder(config.stash[_RESULTS], again=config.option.again), RECORDER
        )


def pytest_report_header(config: pytest.Config) -> str:
    """Report which results exist already."""
    if not config.option.part:
        return ""
    if _RESULTS in config.stash:
        return f"part: {config.option.part}, kept in {config.stash[_RESULTS].path}"
    return f"part: {config.option.part}, not kept: there are changes that are not committed"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of faults, before `-m` selects."""
    for item in items:
        if fault_of(item.name) is not None:
            item.add_marker(pytest.mark.fault)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page, whatever ended the session."""
    options = session.config.option
    if _RESULTS in session.config.stash and options.evidence:
        evidence.write(options.evidence, options.part, session.config.stash[_RESULTS])


@pytest.fixture
def rounds(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Rounds:
    """Return how often to inject a fault: `rounds(1, 100)` is 1, and 100 in the long form."""

    def count(short: int, long: int) -> int:
        chosen = long if request.config.getoption("long") else short
        record_property("rounds", chosen)
        return chosen

    return count


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Return a function that shows a number beside the result: `figure("sessions lost", 0)`."""

    def show(name: str, value: object) -> None:
        record_property("figure", f"{name}: {value}")

    return show


@pytest.fixture
def chance(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Random:
    """Return random numbers; `--seed` with the number that a failed test printed repeats them."""
    seed: int | None = request.config.getoption("seed")
    if seed is None:
        seed = random.randrange(2**32)
    record_property("seed", seed)
    print(f"--seed {seed}")  # noqa: T201 - pytest shows it when the test fails
    return Random(seed)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note which fault is under test."""
    hostless = isinstance(item, AlreadyPassed) or item.get_closest_marker("part_alone")
    ledger.begin(item.name, is_part=bool(hostless))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test of a fault that did not check the invariants."""
    report = yield
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    unchecked = ledger.wants_checks and not ledger.checked and item.stash.get(_PASSED, False)
    if call.when == "teardown":
        report.user_properties += ledger.properties()
    if call.when == "teardown" and report.passed and unchecked:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} does not look for what must hold after a fault"
    return report
