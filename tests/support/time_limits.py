"""A limit of its own for what tests share: its time does not count as that of the first test.

An image is built, or an engine started, by whichever test asks first. A fixture of more than one
test has SHARED_SECONDS each to be set up, then the time of the test begins again; what is left of
them is torn down within as long.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SHARED_SECONDS = 300.0
"""The image of the demo game took 100 s on a machine under load."""

_limit = pytest.StashKey[Any]()
"""The settings of a test's timer, while it runs."""


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Note what the timer of a test was set to."""
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
    """Have a test's timer begin again, with more time, and once more at the end."""
    settings = item.stash.get(_limit, None)
    if settings is None or settings.timeout >= SHARED_SECONDS:  # also inside of another fixture
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
