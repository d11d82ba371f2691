"""Warm pools of one agent on a real engine: kept full, claimed once, and told to the game."""

from collections.abc import Iterator

import grpc
import pytest

from tests.docker.machine import Machine
from tests.docker.pool_agent import PoolAgent, reason, seen_by

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.registry]


@pytest.fixture
def agent(machine: Machine) -> Iterator[PoolAgent]:
    with PoolAgent(machine, ports=60) as agent:
        yield agent


def test_a_claimed_game_reads_what_it_has_become_and_the_pool_is_full_again(
    agent: PoolAgent,
) -> None:
    agent.keep(2, claim_signal="SIGUSR1")
    standby = agent.until_ready(2)[0]
    before = seen_by(standby)
    assert (before["id"], before["standby"]) == (standby.internal_id, True)
    session = agent.claim(standby, "match/1 ü")
    assert (session.pid, session.restart_count) == (standby.pid, 0)
    found = seen_by(session)  # the answer comes after it
    assert (found["id"], found["standby"]) == ("match/1 ü", False)
    assert found["request"] == {"args": ["--ignored"], "labels": {"who": "match/1 ü"}}
    [line] = agent.heard_of_claim(session)
    assert '"id":"match/1 ü"' in line
    agent.until_ready(2)
    with pytest.raises(grpc.RpcError) as refused:
        agent.claim(standby, "match/2")
    assert reason(refused.value) == "STANDBY_NOT_CLAIMABLE"
    agent.give_up(session)
