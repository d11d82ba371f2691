"""An agent with engine and clock in memory."""

import errno
import inspect
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.logs.sealed import SealedLog
from tests.faults.ledger import ledger
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import Agent, Host, an_agent, hosts
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import FakeEngine


@pytest.fixture(autouse=True)
def survived(request: pytest.FixtureRequest) -> None:
    """Check that another run of the agent recovers from any fault of the test."""
    if ledger.wants_checks and inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("next_run")


@pytest.fixture
async def next_run() -> AsyncIterator[None]:
    hosts.clear()
    yield
    for tmp_path, (engine, clock, options) in hosts.items():
        engine.heal()
        async with an_agent(tmp_path, engine, clock, **options) as agent:
            await assert_survived(agent)


@pytest.fixture
def engine(clock: FakeClock) -> FakeEngine:
    return FakeEngine(clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def host(tmp_path: Path, engine: FakeEngine, clock: FakeClock) -> Host:
    return Host(tmp_path, engine, clock)


@pytest.fixture
async def agent(host: Host) -> AsyncIterator[Agent]:
    async with host() as agent:
        yield agent


FullWhile = Callable[..., None]


@pytest.fixture
def full_while(monkeypatch: pytest.MonkeyPatch) -> FullWhile:
    """Make logs fail to be sealed while a condition holds."""

    def begin(full: Callable[[], bool], number: int = errno.ENOSPC) -> None:
        finish = SealedLog.finish

        def finished(log: SealedLog) -> int:
            if full():
                raise OSError(number, os.strerror(number))
            return finish(log)

        monkeypatch.setattr(SealedLog, "finish", finished)

    return begin
