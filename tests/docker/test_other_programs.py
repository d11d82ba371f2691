"""What an operator, or another program, does to containers behind the agent's back."""

import pytest

from tests.docker.machine import ENDED, Agent, Machine, Player, a_machine, port_of
from tests.docker.stack import eventually
from tiltyard.agent.v1 import agent_pb2 as pb

BRIDGE = ("name=tiltyard0", "enable_icc=false")


def test_f46_a_container_that_is_removed_or_restarted_has_ended(machine: Machine) -> None:
    with Agent(machine, ports=4) as agent:
        removed, restarted, kept = agent.play(), agent.play(), agent.play()
        machine.docker("rm", "--force", agent.container_of(removed).name)
        agent.started_by_others = 1
        machine.docker("restart", "--time", "1", agent.container_of(restarted).name)
        for gone in (removed, restarted):
            agent.until(gone, *ENDED)
        container = agent.container_of(restarted)
        eventually(lambda: container.reload() or container.status == "exited", "it is ended again")
        agent.assert_ports_agree(kept)


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
            machine.docker("network", "rm", "tiltyard0")
            agent.until_plays()
            running = [each for each in agent.containers() if each.status == "running"]
            [networks] = [each.attrs["NetworkSettings"]["Networks"] for each in running]
            assert list(networks) == ["tiltyard0"]
