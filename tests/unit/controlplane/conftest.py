"""A database with an account and two hosts, and an authority."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.pki.issuer import Issuer
from controlplane.storage.engine.store import Store
from tests.support.controlplane.fixtures import counted_jobs
from tests.support.controlplane.transactions import run_sql
from tiltyard.runtime.clock import SystemClock

__all__ = ["counted_jobs"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(tmp_path / "controlplane.db")
    await store.open()
    account = "INSERT INTO account(name, created_ms) VALUES ('alice', 1000)"
    hosts = "INSERT INTO agent(name, address) VALUES ('h', 'unix:/h'), ('g', 'unix:/g')"
    for sql in (account, hosts):
        await store.run(run_sql, sql)
    yield store
    await store.close()


@pytest.fixture
async def issuer(tmp_path: Path) -> AsyncIterator[Issuer]:
    made = Issuer(tmp_path / "authority.pem", SystemClock())
    await made.open()
    yield made
    await made.close()
