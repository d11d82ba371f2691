"""The real parts that tests share, each started once for the session and when first asked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.demo_game import Image
from tests.support.harness import Registry
from tests.support.leftovers import end_leftovers
from tests.support.pushed_image import push_game
from tests.support.real_engine import DockerEngine, remove_traces

pytest_plugins = [
    "tests.support.collection",
    "tests.support.leaks",
    "tests.support.power_cut",
    "tests.support.real_parts_policy",
    "tests.faults.results",
    "tests.faults.plugin",
]

# A stall of the machine during an example is no failure.
settings.register_profile("without deadline", settings(deadline=None))
settings.load_profile("without deadline")


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Path]:
    """The unix socket of the machine's Docker Engine, without what killed runs have left on it."""
    with DockerEngine() as engine:
        end_leftovers(engine.socket)
        yield engine.socket


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """A registry of this run."""
    with Registry() as running:
        yield running


@pytest.fixture(scope="session")
def demo_image(docker_engine: Path, registry: Registry) -> Iterator[Image]:
    """The demo game in this run's registry; at the end nothing that came of it is left."""
    yield push_game(registry.address)
    remove_traces(docker_engine, registry.address)
