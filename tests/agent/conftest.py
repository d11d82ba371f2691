"""An agent whose engine and clock are in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.hosts import Agent, an_agent
from tests.fakes import FakeClock, FakeEngine


@pytest.fixture
def engine(clock: FakeClock) -> FakeEngine:
    return FakeEngine(clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def agent(tmp_path: Path, engine: FakeEngine, clock: FakeClock) -> AsyncIterator[Agent]:
    async with an_agent(tmp_path, engine, clock) as agent:
        yield agent
