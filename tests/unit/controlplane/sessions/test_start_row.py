"""The row of a start: what each commit leaves in the database, and when holds are released."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.errors import (
    AgentRefusedError,
    AgentUnavailableError,
    StoppedDuringStartError,
    StoreError,
)
from controlplane.domain.hosts.contract import Claim
from controlplane.domain.sessions.attempts import Attempt
from controlplane.domain.sessions.claims import StandbyTakenError
from controlplane.sessions.claim import HeldStandby
from controlplane.sessions.hold import Hold, NothingStarted, Unknown
from controlplane.sessions.start_row import StartRow
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.session_ends import end_missing
from controlplane.storage.tables.sessions.sessions import request_stop
from tests.support.fake_clock import FakeClock
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows
from tiltyard.contract import ErrorReason, Identity, NetworkMode, Resources, SessionSpec

REFUSED = NothingStarted(AgentRefusedError(ErrorReason.NO_CAPACITY, "full"))
UNKNOWN = Unknown(AgentUnavailableError("timeout"))
NAMED = "SELECT id, internal_id, agent FROM session"
RECORDED = "SELECT kind FROM event ORDER BY sequence"


@dataclass(slots=True, eq=False)
class Noted(Hold):
    """A hold that counts its releases."""

    releases: int = field(default=0, init=False)

    def release(self) -> None:
        self.releases += 1


@dataclass(slots=True, eq=False)
class NotedStandby(HeldStandby):
    """A held standby that counts its releases."""

    releases: int = field(default=0, init=False)

    def release(self) -> None:
        self.releases += 1


def held_standby() -> NotedStandby:
    nothing = cast("Any", None)
    attempt = Attempt("standby", "h", "192.0.2.1")
    return NotedStandby(nothing, attempt, SESSION, nothing, nothing)


def hold(internal_id: str, agent: str = "h") -> Noted:
    return Noted(cast("Any", None), Attempt(internal_id, agent, "192.0.2.1"))


def failed(held: Hold, outcome: NothingStarted | Unknown) -> None:
    held.is_called = True
    held.outcome = outcome


def spec(session_id: str = "s") -> SessionSpec:
    identity = Identity("alice", session_id, "game", "v1", "local", {})
    return SessionSpec(identity, "image", NetworkMode.BRIDGE, Resources(), Resources())


def claim(session_id: str = "s") -> Claim:
    return Claim("standby", spec(session_id).identity, None, "{}", Resources())


class Written:
    """A row and the stops that it has ordered."""

    def __init__(self, store: Store, session_id: str = "s") -> None:
        self.stopped: list[tuple[str, ...]] = []
        self.clock = FakeClock()
        self.row = StartRow(
            store=store,
            clock=self.clock,
            actor=Actor("token"),
            account="alice",
            session_id=session_id,
        )
        store.changes.subscribe({Topic.STOP_ORDER}, lambda change: self.stopped.append(change.key))


@pytest.fixture
def written(store: Store) -> Written:
    return Written(store)


async def test_claim_names_its_standby_and_is_audited(store: Store, written: Written) -> None:
    standby = held_standby()
    await written.row.claim(claim(), standby)
    assert written.row.named is standby
    assert written.row.exists
    assert await rows(store, NAMED) == [("s", "standby", "h")]
    assert await rows(store, RECORDED) == [("session.starting",)]


async def test_taken_standby_leaves_no_row(store: Store, written: Written) -> None:
    first = held_standby()
    second = held_standby()
    await Written(store, "other").row.claim(claim("other"), first)
    with pytest.raises(StandbyTakenError):
        await written.row.claim(claim(), second)
    assert not written.row.exists
    assert written.row.named is None


async def test_row_without_a_requested_id_gets_that_of_its_newest_commit(store: Store) -> None:
    row = Written(store, "").row
    standby = held_standby()
    await row.claim(claim("standby"), standby)
    assert row.id == "standby"
    failed(standby, REFUSED)
    await row.reserve(spec("new"), None)
    assert row.id == "new"
    assert await rows(store, NAMED) == [("new", None, None)]


async def test_cold_start_stops_an_unanswered_claim(store: Store, written: Written) -> None:
    standby = held_standby()
    first = hold("first", "g")
    await written.row.claim(claim(), standby)
    failed(standby, UNKNOWN)
    await written.row.reserve(spec(), first)
    assert standby.releases == 1
    assert written.stopped == [("h", "standby")]
    assert await rows(store, "SELECT internal_id FROM stop_order") == [("standby",)]
    assert written.row.named is first
    assert first.releases == 0
    assert await rows(store, NAMED) == [("s", "first", "g")]
    assert await rows(store, RECORDED) == [("session.starting",)]


async def test_refused_claim_is_released_without_a_stop(store: Store, written: Written) -> None:
    standby = held_standby()
    await written.row.claim(claim(), standby)
    failed(standby, REFUSED)
    await written.row.reserve(spec(), None)
    assert standby.releases == 1
    assert written.stopped == []
    assert await rows(store, "SELECT internal_id FROM stop_order") == []


async def test_cold_start_is_audited_with_its_first_attempt(
    store: Store, written: Written
) -> None:
    await written.row.reserve(spec(), None)
    assert await rows(store, RECORDED) == []
    for internal_id in ("first", "second"):
        attempt = hold(internal_id)
        await written.row.name(attempt)
        failed(attempt, REFUSED)
        await written.row.clear()
    assert await rows(store, RECORDED) == [("session.starting",)]


async def test_first_attempt_on_a_removed_agent_is_released(
    store: Store, written: Written
) -> None:
    await store.run(lambda db: db.execute("UPDATE agent SET removed_ms=1 WHERE name='h'"))
    first = hold("first")
    second = hold("second")
    await written.row.reserve(spec(), first)
    assert first.releases == 1
    assert await rows(store, NAMED) == [("s", None, None)]
    with pytest.raises(AgentRefusedError):
        await written.row.name(second)
    assert second.releases == 1
    assert written.row.named is None


async def test_failed_attempt_is_held_until_its_row_is_written(
    store: Store, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = hold("first")
    await written.row.reserve(spec(), attempt)
    failed(attempt, UNKNOWN)

    async def fail(*_: object, **__: object) -> None:
        raise StoreError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(store, "run", fail)
        with pytest.raises(StoreError):
            await written.row.clear()
    assert written.row.named is attempt
    assert attempt.releases == 0
    await written.row.clear()
    assert attempt.releases == 1
    assert written.stopped == [("h", "first")]
    assert await rows(store, NAMED) == [("s", None, None)]


async def test_attempt_without_an_outcome_is_unanswered_once_called(
    store: Store, written: Written
) -> None:
    attempt = hold("first")
    await written.row.reserve(spec(), attempt)
    attempt.is_called = True
    await written.row.free("the database failed")
    assert written.stopped == [("h", "first")]
    assert attempt.releases == 1
    assert await rows(store, NAMED) == []
    assert await rows(store, RECORDED) == [("session.starting",), ("session.start_failed",)]


async def test_uncalled_attempt_of_a_stopped_start_is_not_stopped(
    store: Store, written: Written
) -> None:
    attempt = hold("first")
    await written.row.reserve(spec(), None)
    await store.run(request_stop, "alice", "s", actor=Actor("token"), now=1)
    with pytest.raises(StoppedDuringStartError):
        await written.row.name(attempt)
    await written.row.free("stopped")
    assert attempt.releases == 1
    assert written.stopped == []
    assert await rows(store, NAMED) == []


async def test_confirmed_attempt_is_released_but_stays_in_the_row(
    store: Store, written: Written
) -> None:
    attempt = hold("first")
    await written.row.reserve(spec(), attempt)
    attempt.is_called = True
    written.row.confirm()
    assert attempt.releases == 1
    assert written.row.named is None
    assert written.stopped == []
    assert await rows(store, NAMED) == [("s", "first", "h")]


async def test_start_whose_claim_was_lost_is_audited_again(store: Store, written: Written) -> None:
    """A report may free the row of a failed claim before the start continues."""
    standby = held_standby()
    await written.row.claim(claim(), standby)
    failed(standby, UNKNOWN)
    await store.run(end_missing, "h", "standby", now=1)
    await written.row.reserve(spec(), hold("first", "g"))
    assert await rows(store, RECORDED) == [
        ("session.starting",),
        ("session.start_failed",),
        ("session.starting",),
    ]
