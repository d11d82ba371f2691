"""A database with an account and two hosts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.storage.engine.store import Database, Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(tmp_path / "controlplane.db")
    await store.open()
    for sql in (
        "INSERT INTO account(name, created_ms) VALUES ('alice', 1000)",
        "INSERT INTO agent(name, address) VALUES ('h', 'unix:/h'), ('g', 'unix:/g')",
    ):
        await store.run(Database.execute, sql)
    yield store
    await store.close()
