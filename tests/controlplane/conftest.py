"""The control plane that these tests call."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.controlplane.stub_api import StubApi
from tests.support.controlplane.system import System


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    """A control plane with one agent and the accounts alice and bob."""
    async with System(tmp_path) as running:
        yield running


@pytest.fixture
async def api() -> AsyncIterator[StubApi]:
    async with StubApi() as running:
        yield running
