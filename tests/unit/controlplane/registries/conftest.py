from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from controlplane.registries.http import RegistryHttp
from tests.support.fake_clock import FakeClock
from tests.unit.controlplane.registries.login_server import Server


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def server(stack: AsyncExitStack, http: RegistryHttp) -> Server:
    server = Server(http)
    await server.start(stack)
    return server


@pytest.fixture
async def http(stack: AsyncExitStack) -> RegistryHttp:
    client = RegistryHttp(FakeClock())
    stack.push_async_callback(client.close)
    return client
