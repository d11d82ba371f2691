"""Quotas (402) and start rates (420) under fifty callers who race for the last unit."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.controlplane.agent_scripts import Script, refusing
from tests.support.controlplane.system import Answer, System, assert_error
from tests.support.fake_clock import FakeClock

CALLERS = 50
RATE = 0.5  # A start every two seconds
BURST = 7  # Starts at once
WAIT = 2  # Seconds until the next start


async def _race(system: System, ids: Iterable[str | None] = (None,) * CALLERS) -> list[Answer]:
    return await asyncio.gather(*(system.start(id=session_id) for session_id in ids))


def _statuses(answers: Iterable[Answer]) -> Counter[int]:
    return Counter(answer.status for answer in answers)


def _started(answers: Iterable[Answer]) -> list[str]:
    return [answer.json["id"] for answer in answers if answer.status == 201]


# ---- quotas: the application's sessions have 1 core and 256 MiB


@pytest.fixture
async def system(system: System) -> System:
    await system.make_application()
    await system.make_application(account="bob", repository="studio/other")
    return system


@pytest.mark.parametrize(
    ("quota", "limit"),
    [
        ({"cpu": 3, "sessions": 3, "ram": 768}, "sessions"),
        ({"cpu": 3.9, "sessions": 99}, "cores"),
        ({"ram": 1023}, "memory"),
    ],
)
async def test_one_of_fifty_gets_the_last_unit(
    system: System, quota: dict[str, float], limit: str
) -> None:
    await system.limit(**quota)
    assert _statuses(await _race(system, ("one", "two"))) == {201: 2}
    ids = [f"s{number}" for number in range(CALLERS)]
    answers = await _race(system, ids)
    assert _statuses(answers) == {201: 1, 402: CALLERS - 1}
    for answer in answers:
        if answer.status != 201:
            assert_error(answer, 402, details=f"quota of {limit} ")
            assert "Retry-After" not in answer.headers
    (first,) = _started(answers)
    assert len(system.agent.live) == 3
    # Another account has its own quota, here none.
    assert (await system.start(account="bob")).status == 201

    assert (await system.call("DELETE", f"/session/{first}")).status == 204
    answers = await _race(system, ids)
    assert _statuses(answers) == {201: 1, 409: 1, 402: CALLERS - 2}  # the ended one keeps its id
    (second,) = _started(answers)

    await system.limit()
    left = [name for name in ids if name not in {first, second}]
    assert _statuses(await _race(system, left)) == {201: CALLERS - 2}  # every other id was free


async def test_failed_starts_leak_no_quota(tmp_path: Path) -> None:
    most = 8
    async with System(tmp_path, agents=3, start_timeout=2.6) as system:
        await system.make_application()
        await system.limit(sessions=most)
        seen: list[int] = []

        def cycled(*scripts: Script | None) -> Script:
            chosen = itertools.cycle(scripts)

            async def script(request: Any, context: Any) -> None:
                live = await system.rows("SELECT count(*) FROM session WHERE ended_ms IS NULL")
                seen.append(live[0][0])
                if (one := next(chosen)) is not None:
                    await one(request, context)

            return script

        reasons = ("NO_CAPACITY", "IMAGE_CANNOT_RUN", "INVALID_ARGUMENT", "ENGINE_TIMEOUT")
        hang = system.agent.hang
        before = cycled(None, hang, None, *map(refusing, reasons), None)
        after = cycled(None, refusing("ENGINE_TIMEOUT"), None, hang)
        for agent in system.agents:
            agent.before_start = before
            agent.after_start = after
        statuses = Counter[int]()
        for _ in range(3):
            answers = await _race(system)
            statuses += _statuses(answers)
            for name in _started(answers):
                assert (await system.call("DELETE", f"/session/{name}")).status == 204
        assert set(statuses) == {201, 402, 420, 422}
        assert max(seen) <= most
        await system.nothing_is_left()

        for agent in system.agents:
            agent.before_start = agent.after_start = None
        system.control_plane.starts.start_timeout = 8.0
        assert _statuses(await _race(system)) == {201: most, 402: CALLERS - most}


# ---- start rates


@pytest.fixture
async def bounded(tmp_path: Path) -> AsyncIterator[System]:
    """Its time passes by `stall` only."""
    patient: dict[str, Any] = {"unresponsive_after": 3600.0, "unreachable_after": 3600.0}
    bounded = System(tmp_path, start_rate=RATE, start_burst=BURST, **patient)
    bounded.clock = FakeClock(time.time())
    async with bounded:
        await bounded.make_application()
        yield bounded


async def test_burst_passes_and_retry_after_is_accurate(bounded: System) -> None:
    clock = bounded.clock
    assert isinstance(clock, FakeClock)
    ids = [f"s{number}" for number in range(CALLERS)]
    answers = await _race(bounded, ids)
    assert _statuses(answers) == {201: BURST, 420: CALLERS - BURST}
    started = set(_started(answers))
    refused = [answer for answer in answers if answer.status == 420]
    assert_error(refused[0], 420)
    assert {answer.headers["Retry-After"] for answer in refused} == {str(WAIT)}
    clock.stall(WAIT)
    answers = await _race(bounded, [name for name in ids if name not in started])
    assert _statuses(answers) == {201: 1, 420: CALLERS - BURST - 1}
    started |= set(_started(answers))
    clock.stall(1000.0)
    later = await _race(bounded)
    # The audit has attempts only: cheap refusals would fill it.
    tried = started | set(_started(later))
    reserved = await bounded.events("session.reserved", "object")
    assert sorted(session_id for (session_id,) in reserved) == sorted(tried)
    assert not await bounded.events("session.not_started", "object")
    assert _statuses(later) == {201: BURST, 420: CALLERS - BURST}  # a bucket holds no more
    assert {str(row[0]) for row in await bounded.rows("SELECT id FROM session")} == (
        started | set(_started(later))
    )


@pytest.mark.system(agents=2, in_order=True)
async def test_audits_several_attempts_as_one_start(system: System) -> None:
    for agent in system.agents:
        agent.before_start = refusing("NO_CAPACITY")
    assert (await system.start(id="x")).status == 420
    assert [len(agent.started) for agent in system.agents] == [1, 1]
    kinds = await system.events("session.%", "kind")
    assert kinds == [("session.reserved",), ("session.not_started",)]


async def test_early_refusals_do_not_count_in_the_start_rate(bounded: System) -> None:
    assert (await bounded.start(id="x")).status == 201
    assert _statuses(await _race(bounded, ["x"] * CALLERS)) == {409: CALLERS}
    await bounded.limit(sessions=1)
    assert _statuses(await _race(bounded)) == {402: CALLERS}
    missing: list[dict[str, Any]] = [{"image": "none"}, {"version": "none"}, {"location": "none"}]
    bad: list[dict[str, Any]] = [{"ttl": "x"}, {"ports": [{"container": 1, "host": 1}]}]
    for fields in missing + bad:
        assert (await bounded.start(**fields)).status == (404 if fields in missing else 422)
    await bounded.limit()
    assert _statuses(await _race(bounded)) == {201: BURST - 1, 420: CALLERS - BURST + 1}
