"""Prepared containers on a real engine: taken by a start, executed once, renamed, replaced."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.domain.containers.engine import LABEL_PREPARED, LABEL_SESSION, container_name
from tests.demo_game import Image
from tests.docker.killed_agent import seen_by
from tests.docker.machine import Machine, Player, port_of
from tests.docker.preparing_agent import PreparingAgent, a_preparing_agent
from tests.docker.stack import (
    PATIENCE,
    Stack,
    a_stack,
    environment_of,
    eventually,
    play_round,
)
from tests.docker.test_crashes import assert_executed
from tests.faults.plugin import Figure
from tests.faults.real_host import listed, stub_of
from tests.faults.records import lose_records
from tests.support.agent.samples import an_id
from tiltyard.agent.v1 import agent_pb2 as pb

KEPT_STEPS = {"start.saved", "start.handed"}
"""Steps after which a killed agent finishes the start; before the record it is undone."""
_WAITS = "tiltyard-wait"  # The name of an init that waits


def test_a_start_takes_the_container_that_waits(machine: Machine) -> None:
    with a_preparing_agent(machine) as agent:
        [waiting] = agent.prepared_containers()
        session = agent.play("--lines-per-second", "20")
        container = agent.container_of(session)
        assert container.id == waiting.id
        assert session.pid == waiting.attrs["State"]["Pid"]
        assert seen_by(session)["id"] == session.identity.session_id
        with Player(machine, port_of(session)) as player:
            assert player.seen_as(session) == player.address
        assert_executed(agent, session, 1)
        agent.until_renamed(session)
        [replacement] = agent.until_kept(1)
        assert replacement.id != waiting.id
        agent.assert_ports_agree(session)
        agent.end(session)
        assert agent.report(session).prepared
        assert agent.until_sealed(session).state == pb.STATE_EXITED
        agent.discard(session)
        assert waiting.id not in {each.id for each in agent.containers()}
        assert prepared_folders(agent) == {replacement.labels[LABEL_PREPARED]}


def test_a_callers_first_session_takes_a_container_that_was_ordered(
    docker_engine: Path, demo_image: Image
) -> None:
    with a_stack(docker_engine, demo_image, prepared=4) as stack:
        [waiting] = until_kept(stack)
        made = stack.start(args=["--lines-per-second", "20"], env={"LEVEL": "Über 9"})
        record = stack.record()
        assert record["container"] == waiting.id
        name = container_name(record["internal_id"])
        eventually(lambda: name in stack.containers(), "it has the session's name")
        play_round(made)
        variables = environment_of(stack.containers()[name])
        assert variables["LEVEL"] == "Über 9"
        [replacement] = until_kept(stack)
        assert replacement.id != waiting.id
        stack.end(made["id"])
        assert stack.report(made["id"])["prepared"] is True


def test_an_agent_that_returns_uses_what_it_had_prepared(machine: Machine) -> None:
    with a_preparing_agent(machine) as agent:
        [waiting] = agent.prepared_containers()
        agent.come_back()
        agent.until_kept(1)
        session = agent.play()
        assert agent.container_of(session).id == waiting.id
        assert_executed(agent, session, 1)
        agent.discard(session)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["start.reserved", "start.saved", "start.handed"])
def test_f02_f03_an_agent_killed_while_a_start_takes_a_container_executes_it_once(
    machine: Machine, step: str
) -> None:
    with a_preparing_agent(machine) as agent:
        [waiting] = agent.prepared_containers()
        agent.break_at(step)
        agent.until_kept(1)
        internal_id = an_id()
        with pytest.raises(grpc.RpcError):
            agent.play(internal_id=internal_id)
        agent.await_kill(step)
        agent.come_back()
        if step in KEPT_STEPS:
            found = agent.session(pb.Session(internal_id=internal_id))
            assert found.pid == waiting.attrs["State"]["Pid"]
        else:
            eventually(lambda: internal_id not in agent.known(), "it is forgotten")
            assert internal_id not in agent.directories()
            assert agent.until_kept(1)[0].id == waiting.id
        again = agent.play(internal_id=internal_id)
        assert agent.container_of(again).id == waiting.id
        assert_executed(agent, again, 1)
        agent.discard(again)


@pytest.mark.slow
def test_a_container_that_others_end_is_not_prepared_again_at_once(machine: Machine) -> None:
    with a_preparing_agent(machine) as agent:
        [waiting] = agent.prepared_containers()
        waiting.stop(timeout=0)
        eventually(lambda: not agent.prepared_containers(), "what remains of it is removed")
        warning = "prepared containers of"
        eventually(lambda: any(warning in each for each in agent.warnings), "the host says so")
        session = agent.play()
        assert LABEL_SESSION in agent.container_of(session).labels  # it went the ordinary way
        agent.discard(session)


@pytest.mark.slow
def test_f10_containers_that_an_engine_lost_are_prepared_again(machine: Machine) -> None:
    with a_preparing_agent(machine) as agent:
        [waiting] = agent.prepared_containers()
        machine.engine.kill()
        machine.engine.start()
        eventually(lambda: agent.engine_available, "the engine is back")
        agent.until_kept(1)
        session = agent.play()
        assert_executed(agent, session, 1)
        agent.discard(session)
        assert waiting.id not in {each.id for each in agent.containers()}


@pytest.mark.slow
def test_f06_a_session_in_a_prepared_container_is_in_doubt_until_it_is_claimed(
    machine: Machine,
) -> None:
    with a_preparing_agent(machine) as agent:
        session = agent.play()
        agent.until_renamed(session)
        with Player(machine, port_of(session)) as player:
            assert player.seen_as(session) == player.address
            agent.kill()
            lose_records(agent.state_dir)
            agent.start()
            found = agent.session(session)
            assert found.in_doubt
            assert found.pid == session.pid
            again = agent.claim(found, session.identity.session_id, again=True)
            assert again.identity.session_id == session.identity.session_id
            player.wait_for_more_answers(session.internal_id)
        agent.assert_ports_agree(again)
        assert_executed(agent, again, 1)
        agent.discard(again)


@pytest.mark.slow
def test_f06_a_control_plane_repeats_what_it_asked_of_sessions_in_prepared_containers(
    docker_engine: Path, demo_image: Image
) -> None:
    with a_stack(docker_engine, demo_image, prepared=4) as stack:
        until_kept(stack)
        made = stack.start(labels={"who": "me"})
        before = stack.record()
        name = container_name(before["internal_id"])
        eventually(lambda: name in stack.containers(), "it has the session's name")
        stack.agent.kill()
        lose_records(stack.agent.state_dir)
        stack.agent.start()
        eventually(lambda: has_identity(stack, made["id"]), "the host knows its owner")
        assert stack.record()["process"] == before["process"]
        assert stack.status(made["id"]) == "running"
        play_round(made)
        stack.end(made["id"])


def has_identity(stack: Stack, session_id: str) -> bool:
    """Whether the host's only session is this one."""
    with stub_of(stack.agent) as stub:
        return [session.identity.session_id for session in listed(stub)] == [session_id]


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
        pytest.param(2000, marks=[pytest.mark.thorough, pytest.mark.timeout(7200)]),
    ],
)
def test_starts_and_stops_leave_nothing(machine: Machine, count: int, figure: Figure) -> None:
    with a_preparing_agent(machine, container_retention_hours=0) as agent:
        taken = 0
        for _ in range(count):
            agent.until_kept(1)
            [waiting] = agent.prepared_containers()
            session = agent.play()
            taken += agent.container_of(session).id == waiting.id
            agent.discard(session)
        assert taken == count
        agent.until_kept(1)
        eventually(lambda: not agent.containers(), "only the waiting container remains")
        [waiting] = agent.prepared_containers()
        assert agent.directories() == set()
        assert prepared_folders(agent) == {waiting.labels[LABEL_PREPARED]}
        assert waiting_inits(agent) == {waiting.attrs["State"]["Pid"]}
        agent.assert_ports_agree()
        figure("starts that took a prepared container", str(taken))


def prepared_folders(agent: PreparingAgent) -> set[str]:
    """The ids of prepared containers of which the host has a folder."""
    return {path.name for path in (agent.state_dir / "prepared").iterdir()}


def waiting_inits(agent: PreparingAgent) -> set[int]:
    """The processes of the agent's containers, by their mounts, whose init waits."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
            mounts = (folder / "mountinfo").read_text() if name == _WAITS else ""
        except (FileNotFoundError, ProcessLookupError, OSError):
            continue
        if str(agent.state_dir) in mounts:
            found.add(int(folder.name))
    return found


def until_kept(stack: Stack) -> list[Any]:
    """Wait until the agent keeps one container for a session; return it."""
    with stub_of(stack.agent) as stub:

        def kept() -> int:
            host = stub.GetHost(pb.GetHostRequest(), timeout=PATIENCE).host
            return sum(shape.kept for shape in host.prepared)

        eventually(lambda: kept() == 1, "one prepared container waits")
    return stack.prepared_containers()
