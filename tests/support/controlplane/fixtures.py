"""Fixtures of tests of the control plane."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import ClientTimeout

from controlplane.storage.engine.worker import Worker
from tests.support.controlplane.system import PATIENCE
from tests.support.fake_clock import count_as_work


@pytest.fixture(autouse=True)
def counted_jobs() -> Iterator[None]:
    """Let clocks of tests wait for the database to do what a caller waits for.

    It does not request `monkeypatch`, which would then be undone after the test's own fixtures.
    """
    send = Worker.send

    def counted(worker: Worker, *job: Any, **named: Any) -> asyncio.Future[Any]:
        future = send(worker, *job, **named)
        count_as_work(future)
        return future

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "send", counted)
        yield


@pytest.fixture
def patient_registry_calls() -> Iterator[None]:
    """Let calls to a registry take as long as a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controlplane.registries.http.TIMEOUT", ClientTimeout(total=PATIENCE))
        yield
