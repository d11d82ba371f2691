"""Warm pools of one agent on a real engine: kept full, claimed once."""

import shutil
import time
from collections.abc import Iterator

import pytest

from tests.docker.killed_agent import PoolAgent, seen_by
from tests.docker.machine import Machine
from tests.docker.stack import eventually
from tests.faults.plugin import Rounds
from tests.support.agent.claiming import reason_of
from tiltyard.agent.v1 import agent_pb2 as pb


@pytest.fixture
def agent(machine: Machine) -> Iterator[PoolAgent]:
    with PoolAgent(machine, ports=60) as agent:
        yield agent


def test_claimed_game_reads_its_session_and_the_pool_is_refilled(agent: PoolAgent) -> None:
    agent.keep(2, claim_signal="SIGUSR1")
    standby = agent.until_ready(2)[0]
    before = seen_by(standby)
    assert before["id"] == standby.internal_id
    assert before["standby"] is True
    session = agent.claim(standby, "match/1 ü")
    assert session.pid == standby.pid
    assert session.restart_count == 0
    found = seen_by(session)  # written before the answer
    assert found["id"] == "match/1 ü"
    assert found["standby"] is False
    assert found["request"] == {"args": ["--ignored"], "labels": {"who": "match/1 ü"}}
    [line] = agent.claim_lines(session)
    assert '"id":"match/1 ü"' in line
    agent.until_ready(2)
    assert reason_of(next(agent.claiming(standby, "match/2"))) == "STANDBY_NOT_CLAIMABLE"
    agent.give_up(session)


@pytest.mark.slow
def test_a_standby_that_crashes_is_replaced_and_never_restarted(agent: PoolAgent) -> None:
    agent.keep(2, restart=True)
    crashed, kept = agent.until_ready(2)
    agent.container_of(crashed).kill()

    def has_ended() -> bool:  # its report may change before
        return crashed.internal_id not in {each.internal_id for each in agent.standbys()}

    eventually(has_ended, "it has ended")
    found = agent.until_ready(2)
    assert kept.internal_id in {each.internal_id for each in found}
    assert crashed.internal_id not in {each.internal_id for each in found}
    assert agent.session(crashed).restart_count == 0
    agent.give_up()


@pytest.mark.slow
def test_crashing_pool_backs_off_and_reports_it(agent: PoolAgent) -> None:
    agent.keep(1, "--crash-after", "0.2")
    eventually(lambda: any("it ended by itself" in each for each in agent.warnings), "it says so")
    begin = time.monotonic()
    made = set()
    while time.monotonic() - begin < 8:
        made |= {each.internal_id for each in agent.standbys()}
        time.sleep(0.02)
    assert len(made) <= 5  # 1, 2, 4 s between them
    agent.keep(1)
    agent.until_ready(1)
    agent.give_up()


@pytest.mark.slow
def test_newer_spec_replaces_the_older_while_the_pool_stays_full(agent: PoolAgent) -> None:
    agent.keep(4)
    agent.until_ready(4)
    agent.keep(4, "--lines-per-second", "5")
    least = 4
    while {each.warm_pool_revision for each in agent.ready()} != {2}:
        least = min(least, len(agent.ready()))
    assert least == 4
    agent.until_ready(4)
    agent.give_up()


@pytest.mark.slow
def test_a_pool_is_kept_full_while_it_is_claimed_empty(agent: PoolAgent, rounds: Rounds) -> None:
    claimed: list[pb.Session] = []
    agent.keep(8)
    for _ in range(rounds(1, 4)):
        standbys = agent.until_ready(8)
        calls = [agent.claiming(each, each.internal_id[:8]) for each in standbys]
        claimed += [next(call).session for call in calls]
    agent.until_ready(8)
    pids = {each.pid for each in claimed}
    assert len(pids) == len(claimed)
    assert {agent.session(each).pid for each in claimed} == pids
    agent.give_up(*claimed)


@pytest.mark.slow
def test_claimed_standby_is_never_reused_after_its_directory_was_deleted(agent: PoolAgent) -> None:
    agent.keep(1)
    session = agent.claim(agent.until_ready(1)[0], "m1")
    agent.until_ready(1)
    agent.kill()
    shutil.rmtree(agent.state_dir / "sessions" / session.internal_id)
    agent.come_back()
    found = agent.session(session)
    assert found.in_doubt is True
    assert found.pid == session.pid
    calls = [agent.claiming(session, f"n{number}") for number in range(50)]
    assert {reason_of(next(call)) for call in calls} == {"STANDBY_NOT_CLAIMABLE"}
    again = agent.claim(session, "m1", again=True)
    assert again.pid == session.pid
    assert again.identity.session_id == "m1"
    assert again.in_doubt is False
    agent.give_up(session)


@pytest.mark.slow
def test_standbys_survive_their_agent_and_a_drain_removes_them(agent: PoolAgent) -> None:
    agent.keep(2)
    before = {each.internal_id: each.pid for each in agent.until_ready(2)}
    agent.come_back()
    assert {each.internal_id: each.pid for each in agent.until_ready(2)} == before
    agent.drain(draining=True)
    eventually(lambda: not agent.containers(), "no container is left")
    agent.drain(draining=False)
    agent.until_ready(2)
    agent.give_up()
