"""Both programs, with hosts that report changes without delay."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.flow.whole import Whole


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Whole]:
    async with Whole(tmp_path) as whole:
        await whole.make_game()
        yield whole


@pytest.fixture
def quick_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make hosts reload certificates at once, and send frequent heartbeats."""
    monkeypatch.setattr("agent.rpc.tls_server.RETRY_SECONDS", 0.02)
    monkeypatch.setattr("agent.rpc.service.HEARTBEAT_SECONDS", 0.05)
