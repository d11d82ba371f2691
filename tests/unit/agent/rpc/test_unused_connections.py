"""Connections from which no call comes are counted in the log, and do not fill it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest

from agent.rpc.unused_connections import (
    LOG_SECONDS,
    MOST_PEERS,
    PATIENCE_SECONDS,
    UnusedConnections,
)
from tests.support.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def handshakes(clock: FakeClock) -> AsyncIterator[UnusedConnections]:
    made = UnusedConnections("127.0.0.1:7444", clock)
    watching = asyncio.create_task(made.watch(), name="handshakes")
    yield made
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


def counted(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.partition(" count=")[2].split()[0] for each in caplog.messages]


async def test_who_calls_is_not_told_of(
    handshakes: UnusedConnections, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MOST_PEERS + 2):
        handshakes.began()
        handshakes.called(f"ipv4:192.0.2.1:{number}")
        handshakes.called(f"ipv4:192.0.2.1:{number}")
    handshakes.began()
    await clock.advance(PATIENCE_SECONDS)
    handshakes.called("ipv4:192.0.2.2:1")  # its handshake took a while
    await clock.advance(10 * LOG_SECONDS)
    assert counted(caplog) == []


async def test_who_does_not_call_is_told_of_soon_and_then_once_a_minute(
    handshakes: UnusedConnections, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    handshakes.called("ipv4:192.0.2.1:1")
    handshakes.began()
    await clock.advance(2 * PATIENCE_SECONDS)
    assert counted(caplog) == ["1"]
    assert caplog.records[0].levelno == logging.WARNING
    for _ in range(100):
        handshakes.began()
        await clock.advance(LOG_SECONDS / 100)
    handshakes.called("ipv4:192.0.2.1:1")  # as before, by no other handshake
    await clock.advance(2 * LOG_SECONDS)
    assert len(counted(caplog)) == 3
    assert sum(map(int, counted(caplog))) == 101
