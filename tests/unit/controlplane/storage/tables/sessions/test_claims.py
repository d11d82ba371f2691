import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.errors import ConflictError, StoppedDuringStartError
from controlplane.domain.sessions.attempts import Attempt
from controlplane.domain.sessions.claims import ClaimedStandby, StandbyTakenError
from controlplane.domain.sessions.sessions import NewSession
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions import claims
from controlplane.storage.tables.sessions.players import join
from controlplane.storage.tables.sessions.reports import write_all
from controlplane.storage.tables.sessions.session_queries import id_of
from controlplane.storage.tables.sessions.sessions import request_stop, reserve
from tests.support.controlplane.transactions import connection_of
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import Identity, Resources

NOW = 1.0
STANDBY = Attempt("standby", "h", "192.0.2.1")
ACTOR = Actor("token")
REPORTER: Any = SimpleNamespace(agent="h", read_ticket=lambda *_: None, now=NOW, keep_ended=0.0)


def cold(session_id: str) -> NewSession:
    return NewSession(
        Identity("alice", session_id, "game", "v1", "local", {}), Resources(), 1, ACTOR
    )


def warm(session_id: str, standby: Attempt = STANDBY) -> NewSession:
    """Return a new session that claims a standby."""
    new = cold(session_id)
    return replace(new, standby=ClaimedStandby(standby, (), {}, "{}"))


async def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return await store.run(lambda db: db.execute(sql).fetchall())


async def test_standby_of_unanswered_claim_is_never_claimed_again(store: Store) -> None:
    await store.run(reserve, warm("first"))
    await store.run(reserve, cold("first"), failed=STANDBY._replace(is_unanswered=True))
    with pytest.raises(StandbyTakenError):
        await store.run(reserve, warm("second"))


@pytest.mark.parametrize("session_id", ["standby", "other"])
async def test_standby_serves_one_session_whatever_its_id(store: Store, session_id: str) -> None:
    await store.run(reserve, warm("first"))
    with pytest.raises(StandbyTakenError):
        await store.run(reserve, warm(session_id))
    with pytest.raises(ConflictError):
        await store.run(reserve, cold("standby"))
    with pytest.raises(StandbyTakenError):  # its id is a session's
        await store.run(reserve, warm("second", Attempt("first", "h", "")))


async def test_standby_of_removed_host_cannot_be_claimed(store: Store) -> None:
    await rows(store, "UPDATE agent SET removed_ms=1")
    with pytest.raises(StandbyTakenError):
        await store.run(reserve, warm("x"))


@pytest.mark.parametrize("next_id", ["x", "y"])
async def test_replaced_claim_keeps_the_players_of_its_id(store: Store, next_id: str) -> None:
    await store.run(reserve, warm("x"))
    assert await store.run(join, "alice", "x", ["p"], actor=None, now=0.0) == ["p"]
    await store.run(reserve, warm(next_id, Attempt("next", "h", "")), failed=STANDBY)
    kept = await rows(store, "SELECT id, internal_id, player_count FROM session")
    assert kept == [(next_id, "next", 1 if next_id == "x" else 0)]
    assert len(await rows(store, "SELECT 1 FROM player")) == kept[0][2]
    await store.run(reserve, warm("z"))  # the standby is free


async def test_claim_with_stop_mark_is_not_replaced(store: Store) -> None:
    await store.run(reserve, warm("x"))
    assert await store.run(request_stop, "alice", "standby", actor=ACTOR, now=2) is not None
    for new in (cold("x"), cold("y"), warm("x", Attempt("next", "h", ""))):
        with pytest.raises(StoppedDuringStartError):
            await store.run(reserve, new, failed=STANDBY)
    assert await rows(store, "SELECT id, internal_id FROM session") == [("x", "standby")]


async def test_claim_with_stop_mark_is_not_repeated(store: Store) -> None:
    await store.run(reserve, warm("x"))
    held = await store.run(claims.held_claim, "h", STANDBY.internal_id, NOW)
    assert held is not None
    assert held.identity.session_id == "x"
    assert held.again is True
    assert await store.run(request_stop, "alice", "x", actor=ACTOR, now=2) is not None
    assert await store.run(claims.held_claim, "h", STANDBY.internal_id, NOW) is None


@pytest.mark.parametrize(
    ("ttl", "now", "left"),
    [
        (None, NOW + 100, None),
        (600, NOW, 600),
        (600, NOW + 100, 500),
        (600, NOW + 700, 1),
    ],
    ids=["no lifetime", "at once", "later", "over"],
)
async def test_claim_of_a_started_session_has_the_lifetime_left(
    store: Store, ttl: int | None, now: float, left: int | None
) -> None:
    new = replace(cold("x"), ttl=ttl)
    await store.run(reserve, new, first=STANDBY)
    held = await store.run(claims.held_claim, "h", STANDBY.internal_id, now)
    assert held is not None
    assert held.identity == new.identity
    assert held.ttl == left
    assert held.again is True


async def test_repeated_claim_of_a_standby_begins_its_lifetime_again(store: Store) -> None:
    """Its lifetime begins with the claim, which the host may not have received before."""
    await store.run(reserve, replace(warm("x"), ttl=600))
    held = await store.run(claims.held_claim, "h", STANDBY.internal_id, NOW + 100)
    assert held is not None
    assert held.ttl == 600


async def test_stop_without_a_live_session_is_not_audited(store: Store) -> None:
    assert await store.run(request_stop, "alice", "x", actor=ACTOR, now=2) is None
    assert await rows(store, "SELECT 1 FROM event WHERE kind='session.stop_requested'") == []


@pytest.mark.parametrize(
    "look",
    [
        lambda db: claims.check_standby(db, "alice", STANDBY),
        lambda db: id_of(db, "alice", "x"),
        lambda db: write_all(db, REPORTER, [SESSION]),
    ],
    ids=["claim", "address", "report"],
)
async def test_finds_ids_without_scans(store: Store, look: Callable[[Database], object]) -> None:
    def plans(db: Database) -> list[Any]:
        asked: list[str] = []
        connection_of(db).set_trace_callback(asked.append)
        look(db)
        connection_of(db).set_trace_callback(None)
        return [row for sql in asked for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]

    steps = [row[3] for row in await store.run(plans) if "session" in row[3]]
    assert len(steps) == 2
    assert not [step for step in steps if re.search(r"SCAN|\(account=\?\)|\(agent=", step)]
