"""A deliverer that runs, and an endpoint."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controlplane.storage.engine.store import Store
from tests.support.controlplane.transactions import run_sql
from tests.unit.controlplane.webhooks.delivering import Delivering
from tests.unit.controlplane.webhooks.raw_endpoint import Endpoint


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as entered:
        yield entered


@pytest.fixture
def endpoint(stack: AsyncExitStack) -> Endpoint:
    return Endpoint(stack)


@pytest.fixture
async def delivering(store: Store, tmp_path: Path) -> AsyncIterator[Delivering]:
    await store.run(run_sql, "INSERT INTO account(name, created_ms) VALUES ('bob', 1000)")
    running = Delivering(store, tmp_path)
    await running.start()
    yield running
    await running.close()
