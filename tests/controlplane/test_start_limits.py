"""Quotas (402) and start rates (420) under fifty callers who race for the last unit."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest

from controlplane.cli.server import LIMITED
from controlplane.http.errors import REFUSED
from controlplane.sessions.start import NOT_STARTED
from controlplane.settings.model import Config
from tests.support.controlplane.agent_scripts import Script, refusing
from tests.support.controlplane.system import Answer, System, assert_error
from tests.support.fake_clock import FakeClock
from tests.support.log_lines import logfmt
from tiltyard.runtime.logging.output import AT_ONCE, written

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
    """A start fails at its hosts one after another, never since its time is over."""
    most = 8
    async with System(tmp_path, agents=3, start_timeout=60.0) as system:
        await system.make_application()
        await system.limit(sessions=most)
        seen: list[int] = []

        def cycled(*scripts: Script | None) -> Script:
            chosen = itertools.cycle(scripts)

            async def script(request: Any, context: Any) -> None:
                live = await system.rows("SELECT count(*) FROM session WHERE ended_ms IS NULL")
                seen.append(live[0][0])
                outcome = next(chosen)
                if outcome is not None:
                    await outcome(request, context)

            return script

        async def lose_answer(_: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "as scripted")

        reasons = ("NO_CAPACITY", "IMAGE_CANNOT_RUN", "INVALID_ARGUMENT", "ENGINE_TIMEOUT")
        before = cycled(None, lose_answer, None, *map(refusing, reasons), None)
        after = cycled(None, refusing("ENGINE_TIMEOUT"), None, lose_answer)
        for agent in system.agents:
            agent.before_start = before
            agent.after_start = after
        statuses = Counter[int]()
        for _ in range(3):
            answers = await _race(system)
            statuses += _statuses(answers)
            for name in _started(answers):
                assert (await system.call("DELETE", f"/session/{name}")).status == 204
        for agent in system.agents:
            agent.before_start = cycled(lose_answer, refusing("ENGINE_TIMEOUT"))
        statuses += _statuses(await _race(system))
        assert set(statuses) == {201, 402, 420, 422}
        assert max(seen) <= most
        await system.nothing_is_left()

        for agent in system.agents:
            agent.before_start = agent.after_start = None
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
    reserved = await bounded.events("session.starting", "object")
    assert sorted(session_id for (session_id,) in reserved) == sorted(tried)
    assert not await bounded.events("session.start_failed", "object")
    assert _statuses(later) == {201: BURST, 420: CALLERS - BURST}  # a bucket holds no more
    assert {str(row[0]) for row in await bounded.rows("SELECT id FROM session")} == (
        started | set(_started(later))
    )


class TwoRegions(System):
    """A control plane with one host in each of two regions."""

    @property
    def config(self) -> Config:
        config = super().config
        here, there = config.agents
        moved = there.model_copy(update={"region": "elsewhere"})
        return config.model_copy(update={"agents": (here, moved)})


@pytest.mark.parametrize(
    ("account", "location", "status"),
    [
        ("alice", "local", 420),
        ("alice", "elsewhere", 201),
        ("bob", "local", 201),
    ],
)
async def test_start_rate_is_per_account_and_region(
    tmp_path: Path, account: str, location: str, status: int
) -> None:
    async with TwoRegions(tmp_path, agents=2, start_rate=0.001, start_burst=1) as system:
        regions = ["local", "elsewhere"]
        await system.make_application(regions=regions)
        await system.make_application(account="bob", repository="studio/other", regions=regions)
        assert (await system.start(account="alice", location="local")).status == 201
        answer = await system.start(account=account, location=location)
        assert answer.status == status


async def test_refusals_by_the_start_rate_do_not_fill_the_log(
    bounded: System, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    with (
        path.open("wb") as file,
        written("info", "logfmt", limited=LIMITED, descriptor=file.fileno()),
    ):
        answers = await _race(bounded)
    refusals = _statuses(answers)[420]
    assert refusals > AT_ONCE
    events = Counter(logfmt(line)["event"] for line in path.read_text("utf-8").splitlines())
    assert events["session started"] == BURST
    assert events[REFUSED] == AT_ONCE
    assert events[NOT_STARTED] == AT_ONCE


@pytest.mark.system(agents=2, in_order=True)
async def test_audits_several_attempts_as_one_start(system: System) -> None:
    for agent in system.agents:
        agent.before_start = refusing("NO_CAPACITY")
    assert (await system.start(id="x")).status == 420
    assert [len(agent.started) for agent in system.agents] == [1, 1]
    kinds = await system.events("session.%", "kind")
    assert kinds == [("session.starting",), ("session.start_failed",)]


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
