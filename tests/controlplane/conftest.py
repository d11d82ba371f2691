"""The control plane that these tests call."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.controlplane.fixtures import counted_jobs, patient_registry_calls
from tests.support.controlplane.stub_api import StubApi
from tests.support.controlplane.system import System

__all__ = ["counted_jobs", "patient_registry_calls"]


@pytest.fixture
async def system(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[System]:
    """A control plane with the accounts alice and bob, as the nearest mark `system` describes.

    `kind` is its class, `application` are the fields of an application that is made, `session` is
    the id of a session that is started; the others are arguments of the class. Without a mark it
    has one agent and no application.
    """
    mark = request.node.get_closest_marker("system")
    arguments = dict(mark.kwargs) if mark else {}
    kind = arguments.pop("kind", System)
    application = arguments.pop("application", None)
    session = arguments.pop("session", None)
    async with kind(tmp_path, **arguments) as running:
        if application is not None:
            await running.make_application(**application)
        if session is not None:
            assert (await running.start(id=session)).status == 201
        yield running


@pytest.fixture
def quick_pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the control plane retry pulls and removals of images soon."""
    monkeypatch.setattr("controlplane.fleet.host.images.LONGEST_WAIT", 0.05)


@pytest.fixture
async def api() -> AsyncIterator[StubApi]:
    async with StubApi() as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "controlplane.toml"
    listen = 'api_listen = "127.0.0.1:0"\nenrol_listen = ""\nmetrics_listen = ""\n'
    path.write_text(f'state_dir = "{tmp_path}/state"\n{listen}')
    return path
