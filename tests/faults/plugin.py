"""A pytest plugin: tests of faults in a long form, with seeds, and what they showed in a page.

A test named `test_fNN_…` is one of fault FNN of `catalogue.py`. `make test-faults` runs them all
and no others (`--faults`), as often as promised (`--long`), and writes down how they ended
(`--evidence FILE`).
"""

import random
from collections.abc import Callable, Generator
from pathlib import Path
from random import Random

import pytest

from tests.faults.evidence import Evidence
from tests.faults.ledger import fault_of, ledger

Rounds = Callable[[int, int], int]
Figure = Callable[[str, object], None]

_PASSED = pytest.StashKey[bool]()
_EVIDENCE = pytest.StashKey[Evidence]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the long form."""
    group = parser.getgroup("faults")
    group.addoption("--faults", action="store_true", help="run the tests of faults alone")
    group.addoption("--evidence", type=Path, help="write what the tests of faults showed")
    group.addoption("--long", action="store_true", help="run each fault as often as promised")
    group.addoption("--seed", type=int, help="what chance begins with, as a failed run printed it")


def pytest_configure(config: pytest.Config) -> None:
    """Collect what is to be written down."""
    collects = not hasattr(config, "workerinput") and not config.option.collectonly
    if config.getoption("evidence") and collects:
        config.stash[_EVIDENCE] = Evidence()
        config.pluginmanager.register(_Collector(config.stash[_EVIDENCE]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is of no fault."""
    if config.getoption("faults"):
        others = [item for item in items if fault_of(item.name) is None]
        items[:] = [item for item in items if fault_of(item.name) is not None]
        config.hook.pytest_deselected(items=others)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write down how they ended."""
    if _EVIDENCE in session.config.stash:
        session.config.stash[_EVIDENCE].write(session.config.getoption("evidence"))


class _Collector:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._evidence.add(report)


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
    """Have a number be shown beside the test's result: `figure("sessions lost", 0)`."""

    def show(name: str, value: object) -> None:
        record_property("figure", f"{name}: {value}")

    return show


@pytest.fixture
def chance(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Random:
    """Chance that can be repeated: `--seed` with what a failed test printed."""
    seed: int | None = request.config.getoption("seed")
    if seed is None:
        seed = random.randrange(2**32)
    record_property("seed", seed)
    print(f"--seed {seed}")  # noqa: T201 - pytest shows it when the test fails
    return Random(seed)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note which fault is under test."""
    ledger.begin(item.name, is_part=item.get_closest_marker("part_alone") is not None)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test of a fault that looked for nothing after it."""
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
