"""The procedure of docs/operations.md for a full disk, on a private engine and disk."""

import os
import shutil
from pathlib import Path

import pytest

from tests.docker.machine import Agent, Player, a_machine, port_of
from tests.docker.procedures import Shell
from tests.docker.stack import eventually
from tests.docker.test_full_disks import ENGINE_MEBIBYTES, SILENT, starts_again
from tests.support.agent.tars import tar_of_files
from tests.support.private_engine import small_disk

pytestmark = pytest.mark.slow

PORTS = 5
LEFT_MEBIBYTES = 4  # Disk space left by an image; the agent reserves a twentieth of the disk


def test_space_is_freed_by_removing_images(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, ENGINE_MEBIBYTES) as disk,
        a_machine(data_root=disk) as machine,
        Agent(machine, PORTS) as agent,
    ):
        plays = agent.play(*SILENT)
        fill_with_an_image(agent, disk)
        eventually(lambda: bool(agent.warnings), "the disk is seen to be full")
        assert agent.refusal() == "DISK_FULL"
        shell = a_shell(tmp_path, agent, disk)
        with (
            Player(machine, port_of(plays)) as player,
            shell.procedure("When a disk is full") as procedure,
        ):
            assert "no session is started" in procedure.type("tiltyard-agent status")
            assert "docker-disk" in procedure.type("tiltyard-agent doctor")
            procedure.type("df")
            procedure.type("du")
            assert "Images" in procedure.type("docker system df")
            assert machine.image in procedure.type("tiltyard-agent images")
            procedure.type("docker image prune")
            procedure.type("docker builder prune")
            again = starts_again(agent)
            assert "no session is started" not in procedure.type("tiltyard-agent status")
            player.seen_as(plays)
        for session in (plays, again):
            agent.end(session)


def test_the_files_of_an_agent_are_moved(tmp_path: Path) -> None:
    with a_machine(data_root=tmp_path) as machine, Agent(machine, PORTS) as agent:
        ended = agent.play()
        agent.end(ended)
        shell = a_shell(tmp_path, agent, tmp_path)
        new = tmp_path / "data"
        shell.say({"/data": str(new)})
        with shell.procedure("Moving the agent's files") as procedure:
            procedure.type("tiltyard-agent drain")
            assert ended.internal_id not in procedure.type("tiltyard-agent sessions")
            procedure.type("systemctl stop tiltyard-agent")
            procedure.type("mkdir")
            procedure.type("sed")
            procedure.type("systemctl start tiltyard-agent")
            assert agent.state_dir == new / "tiltyard-agent"
            procedure.type("tiltyard-agent undrain")
            procedure.type("tiltyard-agent status")
        assert agent.session(ended).internal_id == ended.internal_id
        agent.end(starts_again(agent))


def a_shell(folder: Path, agent: Agent, disk: Path) -> Shell:
    shell = Shell(folder, agent)
    shell.say({"/var/lib/docker": str(disk)})
    shell.set(DOCKER_HOST=f"unix://{agent.machine.engine.socket}")
    return shell


def fill_with_an_image(agent: Agent, disk: Path) -> None:
    """Fill the engine's disk with an unused image."""
    free = shutil.disk_usage(disk).free // 2**20 - LEFT_MEBIBYTES
    layer = tar_of_files({"content": os.urandom(free * 2**20)})
    agent.machine.client.api.import_image_from_data(layer, repository="unused")
