"""What a service manager hears of an agent, and where it wants to hear it."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.config import AgentConfig, Supervision, load_supervision
from agent.daemon import Daemon
from agent.notify import Notifier
from tests.agent.hosts import nobody_else, until
from tests.fakes import FakeClock, FakeEngine


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A service manager's socket, and the address that services are told."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@ty-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(address.replace("@", "\0", 1) if request.param == "abstract" else address)
        heard.setblocking(False)
        yield address, heard


def _heard(manager: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(manager.recv(1024).decode())
        except BlockingIOError:
            return found


def test_a_service_manager_is_told_of_the_beginning_and_the_end(
    manager: tuple[str, socket.socket],
) -> None:
    address, heard = manager
    notifier = Notifier(Supervision(address), FakeClock())
    notifier.ready()
    notifier.stopping()
    assert _heard(heard) == ["READY=1", "STOPPING=1"]


async def test_it_hears_twice_in_each_span_that_the_event_loop_turns(
    manager: tuple[str, socket.socket],
) -> None:
    address, heard = manager
    clock = FakeClock()
    beating = asyncio.create_task(Notifier(Supervision(address, 10.0), clock).beat())
    told = []
    for seconds in (0, 4.9, 0.1, 5):
        await clock.advance(seconds)
        told.append(_heard(heard))
    assert told == [["WATCHDOG=1"], [], ["WATCHDOG=1"], ["WATCHDOG=1"]]
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)


async def test_nobody_is_told_where_nobody_asks(caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier(Supervision(), FakeClock())
    notifier.ready()
    notifier.stopping()
    await notifier.beat()  # returns: there is no watchdog
    assert caplog.text == ""


def test_a_service_manager_that_is_gone_or_reads_nothing_holds_up_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Notifier(Supervision(str(tmp_path / "none")), FakeClock()).ready()
    assert "cannot tell the service manager READY=1: [Errno 2]" in caplog.text
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        notifier = Notifier(Supervision(str(tmp_path / "deaf")), FakeClock())
        while "[Errno 11]" not in caplog.text:  # until its queue is full
            notifier.ready()


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, Supervision()),
        ({"NOTIFY_SOCKET": "/run/n"}, Supervision("/run/n")),
        (
            {"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())},
            Supervision("@n", 2.5),
        ),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "10000000"}, Supervision("@n", 10.0)),
        # Of the process that started us, as when the agent is run from a service's shell.
        (
            {"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"},
            Supervision("@n"),
        ),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "0"}, Supervision("@n")),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "-1"}, Supervision("@n")),
    ],
)
def test_what_a_service_manager_asks_for_is_in_the_environment(
    environment: dict[str, str], asked: Supervision
) -> None:
    assert load_supervision(environment) == asked


async def test_an_agent_is_ready_once_it_serves_beats_and_tells_before_it_lets_go(
    tmp_path: Path, manager: tuple[str, socket.socket]
) -> None:
    address, heard = manager
    told: list[str] = []

    def has(state: str) -> Callable[[], bool]:
        def is_told() -> bool:
            told.extend(_heard(heard))
            return state in told

        return is_told

    config = AgentConfig(
        state_dir=tmp_path / "state",
        socket=tmp_path / "run" / "agent.sock",
        public_address="192.0.2.1",
        firewall_bridges=(),
    )
    supervision = Supervision(address, 10.0)
    daemon = Daemon(config, FakeEngine(), FakeClock(), nobody_else, supervision)
    work = asyncio.create_task(daemon.run(), name="agent")
    await until(has("READY=1"))
    assert daemon.serving.is_set()
    await until(has("WATCHDOG=1"))
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    told.extend(_heard(heard))
    assert [told[0], told[-1]] == ["READY=1", "STOPPING=1"]
