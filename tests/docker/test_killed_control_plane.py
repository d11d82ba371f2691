"""SIGKILL of the control plane at each step of a start, on a real Docker Engine."""

import http.client
from pathlib import Path

import pytest

from controlplane.domain.steps import START_STEPS
from tests.demo_game import Image
from tests.docker.operated_host import Operator
from tests.docker.stack import a_stack, eventually
from tests.faults.plugin import Rounds

BEFORE_THE_HOST = {"start.reserved", "start.attempted"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", START_STEPS)
def test_f38_a_start_whose_control_plane_is_killed_is_there_for_who_asks_again_or_never_was(
    docker_engine: Path, demo_image: Image, step: str, rounds: Rounds
) -> None:
    with a_stack(docker_engine, demo_image) as stack:
        control_plane = stack.control_plane
        operator = Operator(control_plane, enrol_url="")
        for number in range(rounds(1, 20)):
            session_id = f"match-{number}"
            before = set(stack.containers())
            control_plane.settings["failpoint"] = f"{step}:kill"
            control_plane.restart()
            eventually(lambda: operator.is_ready("host-1"), "the host is ready")
            with pytest.raises((OSError, http.client.HTTPException)):
                stack.start(id=session_id)
            eventually(lambda: control_plane.process.returncode == -9, f"it is killed at {step}")
            control_plane.kill()
            control_plane.settings["failpoint"] = ""
            control_plane.start()
            eventually(lambda: operator.is_ready("host-1"), "the host is ready again")
            again = stack.try_to_start(id=session_id)
            assert again.status == (201 if step in BEFORE_THE_HOST else 409)
            assert stack.status(session_id) == "running"
            assert len(set(stack.containers()) - before) == 1
            stack.end(session_id)
