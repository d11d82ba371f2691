"""What holds for every test that runs parts of a control plane."""

import asyncio
from typing import Any

import pytest

from controlplane.storage.engine.worker import Worker
from tests.support.fake_clock import count_as_work


@pytest.fixture(autouse=True)
def counted_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clocks of tests wait for the threads of the database."""
    send = Worker.send

    def counted(worker: Worker, *job: Any, **named: Any) -> asyncio.Future[Any]:
        future = send(worker, *job, **named)
        count_as_work(future)
        return future

    monkeypatch.setattr(Worker, "send", counted)
