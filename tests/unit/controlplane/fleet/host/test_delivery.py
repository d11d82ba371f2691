"""Calls to one host that are repeated until it answers, and how many of them."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from random import Random

import pytest

from controlplane.domain.errors import AgentUnavailableError
from controlplane.fleet.host import delivery
from controlplane.fleet.host.delivery import (
    AT_ONCE,
    MAX_BACK_OFF,
    PER_SECOND,
    Deliveries,
)
from tests.support.fake_clock import FakeClock, until_idle
from tiltyard.runtime.tasks import FAULT_PAUSE


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (AgentUnavailableError("it is away"), []),
        (
            RuntimeError("as scripted"),
            [f"a call fails: internal error seconds={FAULT_PAUSE} agent=h1"],
        ),
    ],
    ids=["expected", "unexpected"],
)
@pytest.mark.parametrize("is_requested", [True, False], ids=["requested", "queued"])
async def test_call_is_repeated_after_any_error(
    caplog: pytest.LogCaptureFixture, error: Exception, logged: list[str], *, is_requested: bool
) -> None:
    clock = FakeClock()
    deliveries = Deliveries("h1", clock, Random(1))
    attempts = 0

    async def attempt() -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise error
        return "done"

    begin = deliveries.start if is_requested else deliveries.queue
    call = begin("stop", "x", attempt=attempt, failed=lambda **_: None)
    await clock.advance(FAULT_PAUSE + MAX_BACK_OFF)
    assert attempts == 2
    assert caplog.messages == logged
    if call is not None:
        assert await call == "done"


class Host:
    """A host whose calls hang until `answer` is set, then fail or succeed."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.deliveries = Deliveries("h1", self.clock, Random(1))
        self.answer = asyncio.Event()
        self.fails = False
        self.begun: list[str] = []
        self.in_progress = 0

    async def _attempt(self, name: str) -> str:
        self.begun.append(name)
        self.in_progress += 1
        try:
            await self.answer.wait()
            if self.fails:
                raise AgentUnavailableError("it is away")
        finally:
            self.in_progress -= 1
        return name

    def queue(self, *names: str, kind: str = "stop") -> None:
        for name in names:
            self.deliveries.queue(
                kind, name, attempt=partial(self._attempt, name), failed=lambda **_: None
            )

    def start(self, name: str) -> "asyncio.Task[str]":
        return self.deliveries.start(
            "stop", name, attempt=lambda: self._attempt(name), failed=lambda **_: None
        )


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host()
    yield host
    await host.deliveries.close()


def names(count: int) -> list[str]:
    return [f"s{number}" for number in range(count)]


@pytest.mark.parametrize("kind", AT_ONCE)
async def test_few_queued_calls_of_a_kind_are_in_progress(host: Host, kind: str) -> None:
    host.queue(*names(100), kind=kind)
    await host.clock.advance(100 / PER_SECOND)
    assert host.in_progress == AT_ONCE[kind]


async def test_queued_calls_begin_at_a_limited_rate_however_fast_they_are_answered(
    host: Host,
) -> None:
    host.answer.set()
    host.queue(*names(100))
    await host.clock.advance(1.0)
    assert len(host.begun) == pytest.approx(PER_SECOND, abs=1)


async def test_a_call_that_is_queued_again_and_again_is_made_at_a_limited_rate(host: Host) -> None:
    host.answer.set()
    for _ in range(50):
        host.queue("s0")
        await host.clock.advance(0.002)
    assert len(host.begun) <= 0.1 * PER_SECOND + 1


async def test_failed_calls_are_repeated_at_a_limited_rate(host: Host) -> None:
    host.answer.set()
    host.fails = True
    host.queue(*names(50))
    await host.clock.advance(3.0)
    assert len(host.begun) <= 3.0 * PER_SECOND + 1
    assert set(host.begun) == set(names(50))


async def test_a_requested_call_begins_before_those_that_a_host_has_caused(host: Host) -> None:
    host.queue(*names(50))
    await until_idle()
    host.start("requested")
    await until_idle()
    assert host.begun[-1] == "requested"


async def test_repeats_of_requested_calls_wait_for_slots(host: Host) -> None:
    host.answer.set()
    host.fails = True
    for name in names(100):
        host.start(name)
    await until_idle()
    assert len(host.begun) == 100
    await host.clock.advance(2.0)
    assert len(host.begun) <= 100 + 2.0 * PER_SECOND + 1


async def test_a_key_waits_or_is_in_progress_once(host: Host) -> None:
    host.start("requested")
    host.queue("requested", "queued", "queued")
    await host.clock.advance(1.0)
    host.queue("queued")
    await host.clock.advance(1.0)
    assert sorted(host.begun) == ["queued", "requested"]


async def test_a_call_can_be_queued_again_once_it_was_answered(host: Host) -> None:
    host.answer.set()
    host.queue("s0")
    await host.clock.advance(1.0)
    host.queue("s0")
    await host.clock.advance(1.0)
    assert host.begun == ["s0", "s0"]


async def test_waiting_calls_are_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_WAITING", 20)
    host.queue(*names(60))
    host.answer.set()
    await host.clock.advance(2.0)
    assert len(host.begun) == 20


async def test_no_call_begins_after_the_end(host: Host) -> None:
    host.queue(*names(50))
    await until_idle()
    await host.deliveries.close()
    begun = len(host.begun)
    await host.clock.advance(1.0)
    assert len(host.begun) == begun
