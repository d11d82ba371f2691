"""A scripted engine and the agent's client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.docker.engine import DockerEngine
from tests.support.agent.scripted_engine import ScriptedEngine, an_engine


@pytest.fixture
async def script(tmp_path: Path) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(tmp_path)
    async with engine.serving():
        yield engine


@pytest.fixture
async def engine(script: ScriptedEngine) -> AsyncIterator[DockerEngine]:
    async with an_engine(script) as made:
        yield made
