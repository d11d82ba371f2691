"""An agent whose engine and clock are in memory, and an engine with scripted answers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.contained import Fails, failing_calls
from tests.support.agent.fixtures import agent, clock, engine, host, next_run, survived
from tests.support.agent.scripted_engine import ScriptedEngine, says

__all__ = ["agent", "clock", "engine", "host", "next_run", "survived"]


@pytest.fixture
async def engine_socket(tmp_path: Path) -> AsyncIterator[ScriptedEngine]:
    script = ScriptedEngine(tmp_path)
    script.answer("GET /containers/json", says([]))
    async with script.serving():
        yield script


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Fails:
    return failing_calls(monkeypatch)
