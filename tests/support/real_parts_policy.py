"""A pytest plugin for tests that need Docker, a registry or root.

A test marked `docker`, `registry` or `root` is skipped if its part is unavailable; tests/docker
needs all three. With CI set, a skip of such a test, or of a whole module, is a failure. With
several pytest processes, tests on the machine's engine run serially in one of them, as do those of
a module with a private engine.
"""

import os
from collections import Counter
from collections.abc import Generator

import pytest

from tests.support.harness import registry_unavailable
from tests.support.real_engine import engine_unavailable

MARKERS = ("docker", "registry", "root")


def in_ci() -> bool:
    """Return whether skips are failures."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark and group the tests on real parts; put the tests that remain in order."""
    for item in items:
        if "tests/docker/" in item.nodeid:
            for marker in MARKERS:
                item.add_marker(marker)
        if any(map(item.get_closest_marker, MARKERS)):
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    yield
    sizes = Counter(mark.args for item in items for mark in item.iter_markers("xdist_group"))
    items.sort(key=lambda item: _precedence(item, sizes))


def _precedence(item: pytest.Item, sizes: Counter[tuple[str, ...]]) -> tuple[int, int]:
    """First what takes long alone, then the largest groups, so that no process is left with them.

    Unit tests come before those that leave thousands of connections in TIME_WAIT.
    """
    if group := item.get_closest_marker("xdist_group"):
        return 1, -sizes[group.args]
    timeout = item.get_closest_marker("timeout")
    if timeout and timeout.args[0] > float(item.config.getini("timeout")):
        return 0, 0
    return 2, "tests/unit/" not in item.nodeid


def _group(item: pytest.Item) -> str:
    shares = isinstance(item, pytest.Function) and "docker_engine" in item.fixturenames
    return "engine" if shares else item.nodeid.partition("::")[0]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose part is unavailable."""
    for marker in MARKERS:
        if item.get_closest_marker(marker) and (reason := _unavailable(marker)):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a test on a real part into a failure."""
    report = yield
    needs = [marker for marker in MARKERS if item.get_closest_marker(marker)]
    not_run = not hasattr(report, "wasxfail") or report.wasxfail.startswith("[NOTRUN]")
    if needs and in_ci() and report.skipped and not_run:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, but it needs {', '.join(needs)}: {report.longrepr}"
        if hasattr(report, "wasxfail"):
            del report.wasxfail  # else it still counts as an expected failure
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole module into a failure, since its markers are unknown."""
    report = yield
    if in_ci() and report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped as a whole in CI: {report.longrepr}"
    return report


def _unavailable(marker: str) -> str:
    if marker == "docker":
        return engine_unavailable()
    if marker == "registry":
        return registry_unavailable()
    return "" if os.geteuid() == 0 else "needs root"
