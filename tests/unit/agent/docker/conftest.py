"""A scripted engine with its client."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.agent.scripted_engine import ScriptedEngine, an_engine


@pytest.fixture
async def script(tmp_path: Path) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(tmp_path)
    async with engine.serving(), an_engine(engine) as engine.client:
        yield engine
