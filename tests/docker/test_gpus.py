"""GPUs through a real engine with its own driver, but without the hardware.

The engine enables the driver if it finds NVIDIA's hook, here a dummy. It passes the devices in
NVIDIA_VISIBLE_DEVICES and runs the hook.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo_game.player import udp_round_trip
from tests.docker.machine import Agent, Machine, a_machine, port_of
from tests.docker.stack import environment_of
from tiltyard.agent.v1 import agent_pb2 as pb

pytestmark = pytest.mark.slow

GPUS = ("GPU-1", "GPU-2")
HOOK = "nvidia-container-runtime-hook"


@pytest.fixture
def with_driver(tmp_path: Path) -> Iterator[Machine]:
    hook = tmp_path / HOOK
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    with a_machine(programs=tmp_path) as machine:
        yield machine


def device_of(agent: Agent, session: pb.Session) -> str | None:
    """The device in the environment of a session's game, once that runs."""
    udp_round_trip(agent.machine.engine.network.address, port_of(session))
    return environment_of(agent.container_of(session)).get("NVIDIA_VISIBLE_DEVICES")


def test_each_session_has_its_own_device(with_driver: Machine) -> None:
    with Agent(with_driver, 10, gpus=list(GPUS)) as agent:
        first, second = (agent.play(gpus=1) for _ in GPUS)
        assert sorted([str(device_of(agent, first)), str(device_of(agent, second))]) == [*GPUS]
        assert device_of(agent, agent.play()) is None
        assert agent.refusal(gpus=1) == "NO_CAPACITY"
        agent.restart()
        assert agent.refusal(gpus=1) == "NO_CAPACITY"
        freed = device_of(agent, first)
        agent.end(first)
        assert device_of(agent, agent.play(gpus=1)) == freed


def test_engine_without_driver_refuses_and_the_device_is_released() -> None:
    with a_machine() as machine, Agent(machine, 10, gpus=["GPU-1"]) as agent:
        assert agent.refusal(gpus=1) == "ENGINE_ERROR"
        assert agent.refusal(gpus=1) == "ENGINE_ERROR", "the device is held"
        assert not agent.containers()
        agent.play()
