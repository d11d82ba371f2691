"""Warm pools of one agent on a real engine: kept full, claimed once, and told to the game."""

import shutil
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


@pytest.mark.slow
def test_what_was_claimed_before_its_directory_was_deleted_is_never_handed_out_again(
    agent: PoolAgent,
) -> None:
    agent.keep(1)
    session = agent.claim(agent.until_ready(1)[0], "m1")
    agent.until_ready(1)
    agent.kill()
    shutil.rmtree(agent.state_dir / "sessions" / session.internal_id)
    agent.come_back()
    found = agent.session(session)
    assert (found.in_doubt, found.pid) == (True, session.pid)
    calls = [agent.claiming(session, f"n{number}") for number in range(50)]
    refusals = {reason(call.exception()) for call in calls}
    assert refusals == {"STANDBY_NOT_CLAIMABLE"}
    again = agent.claim(session, "m1", again=True)
    assert (again.pid, again.identity.session_id, again.in_doubt) == (session.pid, "m1", False)
    agent.give_up(session)
