"""A pytest plugin: who may go without Docker, a registry or root.

A test marked `docker`, `registry` or `root` is skipped where its part cannot be had. With CI set,
the machine is meant to have everything: a skip of such a test, or of a whole module, is a failure.
When pytest runs tests in several processes, those of the machine's engine run one after the other
in one of them, and so do those of a module that has an engine of its own.
"""

import os
from collections.abc import Generator

import pytest

from tests.support.harness import engine_unavailable, registry_unavailable

MARKERS = ("docker", "registry", "root")


def in_ci() -> bool:
    """Return whether a skip hides something that was meant to run."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests of the real parts together, and before the others, which go on beside them."""
    real = [item for item in items if any(map(item.get_closest_marker, MARKERS))]
    for item in real:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    kept = set(real)
    others = [item for item in items if item not in kept]
    # Unit tests before those that leave thousands of closed connections in the kernel's tables.
    items[:] = real + sorted(others, key=lambda item: "tests/unit/" not in item.nodeid)


def _group(item: pytest.Item) -> str:
    shares = isinstance(item, pytest.Function) and "docker_engine" in item.fixturenames
    return "engine" if shares else item.nodeid.partition("::")[0]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose part cannot be had."""
    for marker in MARKERS:
        if item.get_closest_marker(marker) and (reason := _unavailable(marker)):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a test of the real parts into a failure."""
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
    """Turn the skip of a whole module into a failure: its markers cannot be known."""
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
