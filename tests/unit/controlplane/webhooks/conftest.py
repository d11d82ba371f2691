"""A deliverer that runs, and an endpoint."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from controlplane.storage.engine.store import Store
from controlplane.storage.engine.worker import Worker
from tests.support.controlplane.transactions import run_sql
from tests.support.fake_clock import count_as_work
from tests.unit.controlplane.webhooks.delivering import Delivering
from tests.unit.controlplane.webhooks.raw_endpoint import Endpoint


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as entered:
        yield entered


@pytest.fixture
def endpoint(stack: AsyncExitStack) -> Endpoint:
    return Endpoint(stack)


@pytest.fixture(autouse=True)
def counted_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock wait for the threads of the database."""
    send = Worker.send

    def counted(worker: Worker, *job: Any, **named: Any) -> asyncio.Future[Any]:
        future = send(worker, *job, **named)
        count_as_work(future)
        return future

    monkeypatch.setattr(Worker, "send", counted)


@pytest.fixture
async def delivering(store: Store, tmp_path: Path) -> AsyncIterator[Delivering]:
    await store.run(run_sql, "INSERT INTO account(name, created_ms) VALUES ('bob', 1000)")
    running = Delivering(store, tmp_path)
    await running.start()
    yield running
    await running.close()
