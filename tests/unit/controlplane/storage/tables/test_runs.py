"""Players belong to a run of their session."""

from dataclasses import replace

import pytest

from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.sessions.players import MostPlayers
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.players import (
    LATE_JOIN_SECONDS,
    MAX_RUNS,
    begin_run,
    join,
    joined,
    leave,
    most_players,
)
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows
from tests.unit.controlplane.storage.tables.sessions.test_reports import NOW, X, ended, report
from tiltyard.contract import State

CRASH = NOW - 1
CRASH_MS = 99_000


async def players_join(store: Store, *players: str, now: float = CRASH - 1) -> None:
    await store.run(join, "alice", "x", players, actor=None, now=now)


async def players(store: Store) -> list[str]:
    """The players of the session, whose number its row has, too."""
    found = await store.run(joined, "alice", "x")
    assert await rows(store, "SELECT player_count FROM session") == [(len(found),)]
    return found


async def most(store: Store) -> MostPlayers:
    return await store.run(most_players, "alice", "x")


def failed(session: HostSession = X, time: float = CRASH) -> HostSession:
    """The session after a failed run, before the next one."""
    return replace(session, state=State.RESTARTING, failure_time=time)


async def test_failed_run_takes_its_players_with_it(store: Store) -> None:
    await report(store, "h", X)
    await players_join(store, "a", "b")
    await report(store, "h", failed())
    assert await players(store) == []
    await players_join(store, "c", now=NOW)
    await report(store, "h", replace(failed(), state=State.RUNNING))
    assert await players(store) == ["c"]


async def test_next_run_that_is_reported_first_begins_without_players(store: Store) -> None:
    await report(store, "h", X)
    await players_join(store, "a")
    await report(store, "h", replace(X, failure_time=CRASH))
    assert await players(store) == []


async def test_join_between_a_crash_and_its_report_is_one_of_the_next_run(store: Store) -> None:
    await report(store, "h", X)
    await players_join(store, "a", now=CRASH)
    await players_join(store, "b", now=CRASH + 0.5)
    await report(store, "h", failed())
    assert await players(store) == ["b"]
    assert await most(store) == MostPlayers(1, {CRASH_MS: 2})


@pytest.mark.parametrize(
    "time",
    [
        NOW - 10 * LATE_JOIN_SECONDS,
        NOW + 10 * LATE_JOIN_SECONDS,
    ],
    ids=["behind", "ahead"],
)
async def test_wrong_clock_of_a_host_keeps_no_players_of_earlier_runs(
    store: Store, time: float
) -> None:
    await report(store, "h", X)
    await players_join(store, "a", now=NOW - LATE_JOIN_SECONDS)
    await report(store, "h", failed(time=time))
    assert await players(store) == []
    await players_join(store, "b", now=NOW + 1)
    await report(store, "h", replace(failed(time=time), state=State.RUNNING))
    assert await players(store) == ["b"]


async def test_players_of_other_sessions_stay(store: Store) -> None:
    other = replace(X, internal_id="j", identity=replace(X.identity, session_id="y"))
    await report(store, "h", X, other)
    await store.run(join, "alice", "y", ["a"], actor=None, now=0.0)
    await report(store, "h", failed(), other)
    assert await store.run(joined, "alice", "y") == ["a"]


async def test_session_whose_host_has_lost_its_record_keeps_its_players(store: Store) -> None:
    await report(store, "h", failed())
    await players_join(store, "a", now=NOW)
    await report(store, "h", replace(X, failure_time=None))
    assert await players(store) == ["a"]


async def test_highest_number_of_players_of_each_run_is_kept(store: Store) -> None:
    await report(store, "h", X)
    await players_join(store, "a", "b", "c")
    await store.run(leave, "alice", "x", ["a", "b"], actor=None, now=NOW)
    await report(store, "h", failed(time=CRASH))
    await report(store, "h", failed(time=CRASH + 0.5))
    await players_join(store, "d", "e", now=NOW)
    await report(store, "h", ended(failed(time=CRASH + 0.5), NOW))
    assert await most(store) == MostPlayers(2, {CRASH_MS: 3, 99_500: 0})


async def test_run_that_ends_with_its_report_is_counted(store: Store) -> None:
    await report(store, "h", X)
    await players_join(store, "a")
    await report(store, "h", ended(failed(), NOW))
    assert await most(store) == MostPlayers(0, {CRASH_MS: 1})


async def test_numbers_of_the_newest_runs_are_kept(store: Store) -> None:
    await report(store, "h", X)

    async def fail(number: int) -> None:
        await store.run(begin_run, "alice", "x", failed=float(number), now=NOW)

    for number in range(MAX_RUNS + 5):
        await fail(number)
    found = await most(store)
    assert list(found.earlier) == [number * 1000 for number in range(5, MAX_RUNS + 5)]
