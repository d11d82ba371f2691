"""Claims in the database: which standbys they may take, and which claims are made again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.domain.contract import Claim, Identity, Resources
from controlplane.storage.engine.store import Actor, Store
from controlplane.storage.tables.claims import Begun, ClaimStore
from controlplane.storage.tables.sessions import Attempt, NewSession, SessionStore

STANDBY = Attempt("standby", "h", "192.0.2.1")
ACTOR = Actor("token")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(tmp_path / "controlplane.db")
    await store.open()
    for sql in (
        "INSERT INTO account(name, created_ms) VALUES ('alice', 0)",
        "INSERT INTO agent(name, address) VALUES ('h', 'unix:/h')",
    ):
        await store.run(lambda db, sql=sql: db.execute(sql))  # type: ignore[misc]
    yield store
    await store.close()


async def reserve(store: Store, session_id: str) -> None:
    new = NewSession("alice", session_id, "game", "v1", "local", {}, "", Resources(), 1)
    await SessionStore(store).reserve_session(new)


async def claim(store: Store, session_id: str) -> Begun:
    """Claim the standby for a session."""
    identity = Identity("alice", session_id, "game", "v1", "local", {})
    wanted = Claim(STANDBY.internal_id, identity, None, "{}")
    return await ClaimStore(store).begin(("alice", session_id), STANDBY, wanted, 1, first_of=ACTOR)


async def test_a_standby_whose_outcome_is_unknown_is_never_claimed_again(store: Store) -> None:
    await reserve(store, "first")
    assert await claim(store, "first") is Begun.YES
    first = ("alice", "first")
    await SessionStore(store).end_attempt(*first, STANDBY, 2, abandon=True)
    await SessionStore(store).free(*first, "as scripted", 2, attempt=None, attempted=True)
    await reserve(store, "second")
    assert await claim(store, "second") is Begun.NAME_TAKEN


async def test_a_claim_of_a_session_that_is_to_be_stopped_is_not_made_again(store: Store) -> None:
    await reserve(store, "x")
    assert await claim(store, "x") is Begun.YES
    held = await ClaimStore(store).held("h", STANDBY.internal_id)
    assert held is not None
    assert (held.identity.session_id, held.again) == ("x", True)
    assert await SessionStore(store).request_stop("alice", "x", ACTOR, 2) is not None
    assert await ClaimStore(store).held("h", STANDBY.internal_id) is None
