"""A scripted engine with its client."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.init.channel import make_channel
from tests.support.agent.hand_overs import patient_hand_overs
from tests.support.agent.scripted_engine import ScriptedEngine, an_engine

__all__ = ["patient_hand_overs"]


@pytest.fixture
async def script(tmp_path: Path) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(tmp_path)
    await asyncio.to_thread(make_channel, engine.channel)
    async with engine.serving(), an_engine(engine) as engine.client:
        yield engine
