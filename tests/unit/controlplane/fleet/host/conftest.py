"""Hosts without a network."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.controlplane.fleet.host.pulling_host import PullingHost


@pytest.fixture
async def host() -> AsyncIterator[PullingHost]:
    host = PullingHost()
    yield host
    await host.tasks.close()
    await host.kept.close()
