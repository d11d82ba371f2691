"""A scripted engine with its client."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.docker import first_process
from agent.init.channel import make_channel
from tests.support.agent.scripted_engine import ScriptedEngine, an_engine


@pytest.fixture(autouse=True)
def patient_hand_overs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand-over returns once the program is executed, also on a busy machine."""
    monkeypatch.setattr(first_process, "EXECUTED_SECONDS", 120.0)


@pytest.fixture
async def script(tmp_path: Path) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(tmp_path)
    await asyncio.to_thread(make_channel, engine.channel)
    async with engine.serving(), an_engine(engine) as engine.client:
        yield engine
