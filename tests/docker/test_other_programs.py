"""What an operator, or another program, does to containers behind the agent's back."""

import pytest

from tests.docker.machine import ENDED, Agent, Machine, Player, a_machine, port_of
from tests.docker.stack import eventually
from tiltyard.agent.v1 import agent_pb2 as pb

ENDPOINTS = "{{range $id, $_ := .Containers}}{{$id}} {{end}}"
BRIDGE = ("name=tiltyard0", "enable_icc=false")


def test_f46_a_container_that_is_removed_or_restarted_has_ended(machine: Machine) -> None:
    """A restarted one plays on if the agent looks at it only when it runs again."""
    with Agent(machine, ports=4) as agent:
        removed = agent.play()
        restarted = agent.play()
        kept = agent.play()
        before = agent.processes()[restarted.internal_id]
        machine.docker("rm", "--force", agent.container_of(removed).name)
        agent.started_by_others = 1
        machine.docker("restart", "--time", "1", agent.container_of(restarted).name)
        agent.until(removed, *ENDED)
        eventually(lambda: _is_known(agent, restarted, before), "the agent has noted the restart")
        live = [kept]
        if agent.session(restarted).state not in ENDED:
            live.append(restarted)
        agent.assert_ports_agree(*live)


def _is_known(agent: Agent, restarted: pb.Session, before: int) -> bool:
    """True if a session has ended with its container, or has its container's new process."""
    session = agent.session(restarted)
    container = agent.container_of(restarted)
    if session.state in ENDED:
        return bool(container.status == "exited")
    process = container.attrs["State"]["Pid"]
    return process not in {0, before} and session.pid == process


def test_f46_a_renamed_container_plays_on_and_ends_when_asked(machine: Machine) -> None:
    with Agent(machine, ports=2) as agent:
        session = agent.play()
        with Player(machine, port_of(session)) as player:
            player.seen_as(session)
            machine.docker("rename", agent.container_of(session).name, "mine-now")
            assert player.seen_as(session) == player.address
        agent.end(session)
        assert agent.session(session).end_reason == pb.END_REASON_STOPPED


def test_f46_containers_of_others_are_not_touched(machine: Machine) -> None:
    with Agent(machine, ports=2) as agent:
        session = agent.play()
        name = agent.container_of(session).name
        twin = machine.docker("run", "--detach", "--name", f"{name}-twin", machine.image)
        try:
            machine.docker("network", "create", "theirs")
            agent.end(session)
            agent.kill()
            agent.settings["container_retention_hours"] = 0
            agent.start()
            eventually(lambda: not agent.containers(), "its own container is removed")
            assert machine.docker("inspect", "--format", "{{.State.Running}}", twin) == "true"
        finally:
            machine.docker("rm", "--force", "--volumes", twin)
            machine.docker("network", "rm", "theirs")


@pytest.mark.slow
def test_f46_a_network_that_is_removed_is_made_again() -> None:
    with a_machine(icc=True) as machine:
        options = [f"--opt=com.docker.network.bridge.{each}" for each in BRIDGE]
        machine.docker("network", "create", *options, "tiltyard0")
        with Agent(machine, ports=2) as agent:
            agent.end(agent.play())
            # Containers that wait for a start keep their network in use.
            waiting = machine.docker("network", "inspect", "--format", ENDPOINTS, "tiltyard0")
            for container in waiting.split():
                machine.docker("rm", "--force", "--volumes", container)
            machine.docker("network", "rm", "tiltyard0")
            agent.until_plays()
            running = [each for each in agent.containers() if each.status == "running"]
            [networks] = [each.attrs["NetworkSettings"]["Networks"] for each in running]
            assert list(networks) == ["tiltyard0"]
