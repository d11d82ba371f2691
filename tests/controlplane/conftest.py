"""The control plane that these tests call."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.controlplane.stub_api import StubApi
from tests.support.controlplane.system import System


@pytest.fixture
async def system(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[System]:
    """A control plane with the accounts alice and bob, as the nearest mark `system` describes.

    `kind` is its class, `application` are the fields of an application that is made; the others
    are arguments of the class. Without a mark it has one agent and no application.
    """
    mark = request.node.get_closest_marker("system")
    arguments = dict(mark.kwargs) if mark else {}
    kind, application = arguments.pop("kind", System), arguments.pop("application", None)
    async with kind(tmp_path, **arguments) as running:
        if application is not None:
            await running.make_application(**application)
        yield running


@pytest.fixture
async def api() -> AsyncIterator[StubApi]:
    async with StubApi() as running:
        yield running
