"""How long a host is given for an attempt: a share of what the caller waits."""

from pathlib import Path
from typing import Any

import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.contract import Answer, Claim
from controlplane.sessions.start import CALL_SHARE, CLAIM_SHARE, MAX_UNANSWERED_CLAIMS
from tests.controlplane.test_warm_pools import keep
from tests.support.controlplane.system import System

PATIENCE = 600.0


async def test_a_caller_who_waits_longer_has_hosts_that_may_take_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    claim = AgentClient.claim_session

    async def look(_: Any, context: Any) -> None:
        given.append(context.time_remaining())

    async def noted(client: AgentClient, wanted: Claim, timeout: float) -> Answer:
        given.append(timeout)
        return await claim(client, wanted, timeout)

    monkeypatch.setattr(AgentClient, "claim_session", noted)
    async with System(tmp_path, start_timeout=PATIENCE) as system:
        system.agent.before_start = look
        await system.make_application()
        assert (await system.start()).status == 201
        await keep(system, size=1)
        assert (await system.start()).status == 201
        assert (len(system.agent.started), len(system.agent.claimed)) == (1, 1)
    cold, warm = given
    # A minute is for a machine that stands still; gRPC rounds up what it sends.
    assert cold == pytest.approx(PATIENCE * CALL_SHARE, abs=60)
    assert warm == pytest.approx(PATIENCE * CLAIM_SHARE, abs=60)
    assert CALL_SHARE <= 1 / 2
    assert CALL_SHARE + MAX_UNANSWERED_CLAIMS * CLAIM_SHARE <= 1
