"""Separate time limits for shared fixtures, which do not count as time of the first test.

A fixture of a wider scope has SHARED_SECONDS for its setup, after which the time of the test
restarts, and as long for its teardown.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SHARED_SECONDS = 300.0
"""The image of the demo game took 100 s on a machine under load."""

_limit = pytest.StashKey[Any]()
"""The settings of a running test's timer."""


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Record the timer settings of a test."""
    item.stash[_limit] = settings


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    if fixturedef.scope == "function":
        return (yield)
    with _more_time(request._pyfuncitem):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, Any, Any]:
    if nextitem is not None and nextitem.path == item.path:
        return (yield)
    with _more_time(item):
        return (yield)


@contextmanager
def _more_time(item: pytest.Item) -> Iterator[None]:
    """Restart a test's timer with more time, and again at the end."""
    settings = item.stash.get(_limit, None)
    if settings is None or settings.timeout >= SHARED_SECONDS:  # also inside another fixture
        yield
        return
    _set(item, settings._replace(timeout=SHARED_SECONDS))
    try:
        yield
    finally:
        _set(item, settings)


def _set(item: pytest.Item, settings: Any) -> None:
    item.ihook.pytest_timeout_cancel_timer(item=item)
    item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
