import asyncio
import gc
import os
import threading
from collections.abc import Sized
from pathlib import Path

import pytest

from tests.faults.plugin import Figure, Rounds
from tests.support.agent.hosts import Agent, assert_nothing_is_left
from tests.support.agent.samples import a_spec, an_id
from tests.support.leaks import ours, resident_bytes
from tiltyard.contract import EndReason

AT_ONCE = 10
KEPT_SECONDS = 3700  # Longer than the hour for which ids of stopped sessions are kept
SPARE_OBJECTS = 300  # Less than one per cycle of the short run
BATCH = 500  # Cycles after which the hour is over, so that memory does not grow with their number
SPARE_BYTES = 8 * 1024 * 1024  # Memory that allocators may keep: 0.8 kB per cycle of the long run


def _held(agent: Agent) -> dict[str, int]:
    """Count what a leak would increase: files, tasks, threads and the agent's tables."""
    tables = {
        f"{type(part).__name__}.{name}": len(table)
        for part in (
            agent.sessions,
            agent.runtime.deadlines,
            agent.reservations.ports,
            agent.reservations.capacity,
            agent.runtime.feed,
            agent.runtime.usage,
            agent.images,
            agent.reconciler,
            agent.records,
        )
        for name, table in vars(part).items()
        if isinstance(table, Sized)
    }
    return {
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": len(asyncio.all_tasks()),
        "threads": len(ours(set(threading.enumerate()))),
        **tables,
    }


async def _held_at_rest(agent: Agent) -> dict[str, int]:
    """Count once two readings agree, since leftovers of earlier tests may still be ending."""
    gc.collect()
    before = _held(agent)
    while True:
        await asyncio.sleep(0.1)
        if (now := _held(agent)) == before:
            return now
        before = now


async def _cycle(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(ttl=3600.0))
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)


async def _cycles(agent: Agent, count: int) -> None:
    for _ in range(count // AT_ONCE):
        await asyncio.gather(*(_cycle(agent) for _ in range(AT_ONCE)))
    await agent.clock.advance(KEPT_SECONDS)
    await _cycle(agent)  # removes expired ids
    assert agent.runtime.deadlines.next_due() is None  # drops cleared ones
    agent.engine.calls.clear()
    agent.flows_forgotten.clear()


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_f47_start_stop_cycles_leave_the_agent_as_it_was(
    agent: Agent,
    rounds: Rounds,
    figure: Figure,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("WARNING")  # pytest keeps what is logged
    monkeypatch.setattr(os, "fsync", lambda _: None)  # takes too long
    monkeypatch.setattr("agent.sessions.starting.START_WAIT_SECONDS", None)
    await _cycles(agent, BATCH)
    held = await _held_at_rest(agent)
    objects = _objects()
    memory = resident_bytes(os.getpid())
    for _ in range(rounds(500, 10000) // BATCH):
        await _cycles(agent, BATCH)
    assert _objects() - objects < SPARE_OBJECTS
    grown = resident_bytes(os.getpid()) - memory
    figure("memory grown", f"{grown / 2**20:.1f} MiB")
    assert grown < SPARE_BYTES
    assert await _held_at_rest(agent) == held
    await assert_nothing_is_left(agent)
