"""What the timer of a test is set to, while something is made for it and while it runs."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.time_limits import SHARED_SECONDS

OWN = 60.0
"""Seconds: `timeout` in pyproject.toml."""


def left() -> float:
    """How long the test has from now on."""
    return signal.getitimer(signal.ITIMER_REAL)[0]


@pytest.fixture(scope="session")
def image() -> float:
    return left()


@pytest.fixture(scope="module")
def engine(image: float) -> Iterator[tuple[float, float]]:
    yield image, left()
    assert left() > OWN  # the last test of a module tears it down


@pytest.fixture
def session() -> float:
    return left()


def test_a_shared_fixture_has_a_limit_of_its_own(
    engine: tuple[float, float], session: float
) -> None:
    assert all(OWN < each <= SHARED_SECONDS for each in engine)
    assert 0 < session <= OWN
    assert 0 < left() <= OWN


@pytest.mark.timeout(2 * SHARED_SECONDS)
@pytest.mark.usefixtures("engine")
def test_a_longer_limit_is_the_test_s_own() -> None:
    assert SHARED_SECONDS < left() <= 2 * SHARED_SECONDS
