import asyncio
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_clock import FakeClock
from tests.support.service_manager import Manager, a_manager
from tests.support.tasks import running
from tiltyard.runtime.systemd import READY, Notifier, Supervision, read_supervision


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    path = str(tmp_path / "notify")
    with a_manager(path if request.param == "path" else f"@ty-{uuid.uuid4()}") as manager:
        yield manager


async def test_sends_two_keepalives_per_watchdog_timeout(manager: Manager) -> None:
    clock = FakeClock()
    async with running(Notifier(Supervision(manager.address, 10.0), clock.sleep).beat()):
        reported = []
        for seconds in (0, 4.9, 0.1, 5):
            await clock.advance(seconds)
            reported.append(manager.received())
    assert reported == [["WATCHDOG=1"], [], ["WATCHDOG=1"], ["WATCHDOG=1"]]


async def test_follow_notifies_from_readiness_to_stopping(manager: Manager) -> None:
    serving = asyncio.Event()
    stopping = asyncio.Event()
    async with running(Notifier(Supervision(manager.address, 0.01)).follow(serving, stopping)):
        await asyncio.sleep(0)
        assert manager.received() == []  # not ready yet
        serving.set()
        assert [await manager.next() for _ in range(3)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
        stopping.set()
        while (reported := await manager.next()) == "WATCHDOG=1":
            pass
        assert reported == "STOPPING=1"
        assert await manager.next() == "WATCHDOG=1"  # stopping may take longer than the timeout


async def test_sends_nothing_without_a_service_manager(caplog: pytest.LogCaptureFixture) -> None:
    serving = asyncio.Event()
    serving.set()
    await Notifier(Supervision()).follow(serving, serving)  # returns: there is no watchdog
    assert caplog.text == ""


def test_deaf_manager_blocks_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Notifier(Supervision(str(tmp_path / "none"))).notify(READY)
    assert "cannot notify the service manager state=READY=1 error=[Errno 2]" in caplog.text
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        notifier = Notifier(Supervision(str(tmp_path / "deaf")))
        while "[Errno 11]" not in caplog.text:  # until its queue is full
            notifier.notify(READY)


@pytest.mark.parametrize(
    ("environment", "supervision"),
    [
        ({}, Supervision()),
        ({"JOURNAL_STREAM": "8:17"}, Supervision(journal_stream="8:17")),
        ({"NOTIFY_SOCKET": "/run/n"}, Supervision("/run/n")),
        (
            {"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())},
            Supervision("@n", 2.5),
        ),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "10000000"}, Supervision("@n", 10.0)),
        # For the parent process, as when run from a service's shell.
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, Supervision("@n")),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "0"}, Supervision("@n")),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "-1"}, Supervision("@n")),
    ],
)
def test_reads_the_environment_of_systemd(
    environment: dict[str, str], supervision: Supervision
) -> None:
    assert read_supervision(environment) == supervision
