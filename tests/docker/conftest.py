"""Both programs on the real engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo_game import Image
from tests.docker.machine import Machine, a_machine
from tests.docker.operated_host import Enrolled
from tests.docker.procedures import Shell
from tests.docker.remote_hosts import Machines, remote_machines
from tests.docker.stack import Stack, a_stack
from tests.support.harness import Registry


@pytest.fixture
def stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    with a_stack(docker_engine, demo_image) as made:
        yield made


@pytest.fixture(scope="module")
def shared_stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    """The stack of a module's tests that do not mind each other's ended sessions."""
    with a_stack(docker_engine, demo_image) as made:
        yield made


@pytest.fixture(scope="module")
def patient_stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    """A shared stack whose games may take long to end by the signal of a stop."""
    with a_stack(docker_engine, demo_image, stop_grace=60) as made:
        yield made


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with a_machine() as machine:
        yield machine


@pytest.fixture(
    scope="module",
    params=[pytest.param(True, marks=pytest.mark.slow), False],
    ids=["proxy", "no-proxy"],
)
def any_machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine with docker-proxy, then one without."""
    with a_machine(userland_proxy=request.param) as machine:
        yield machine


@pytest.fixture(scope="module")
def machines(registry: Registry) -> Iterator[Machines]:
    with remote_machines(registry, 2) as made:
        yield made


@pytest.fixture
def shell(stack: Enrolled, tmp_path: Path) -> Shell:
    """A shell that maps the page's enrolment address to that of the stack."""
    shell = Shell(tmp_path, stack.agent, stack.control_plane)
    shell.say({"https://control.example:7443": stack.operator.enrol_url})
    return shell
