"""What is kept in memory of sessions and tokens agrees with the database."""

import asyncio
import threading
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest

from controlplane.access.accounts import Accounts
from controlplane.domain.access.audit import Actor
from controlplane.domain.access.tokens import NewToken, Scope, mint
from controlplane.domain.errors import TiltyardError, UnauthorizedError
from controlplane.metrics.http import HttpMetrics
from controlplane.storage.engine.cache import Cache
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import accounts, tokens
from controlplane.storage.tables.sessions import players, session_ends, session_rows, sessions
from tests.support.controlplane.system import PATIENCE
from tests.unit.controlplane.storage.tables.sessions.test_claims import cold
from tests.unit.controlplane.storage.tables.test_noted_changes import ATTEMPT, running
from tiltyard.runtime.clock import SystemClock

NAMES = ("one", "two", "three")
PLAYERS = ("ada", "bob", "cy")
OPERATOR = Actor("operator")
STEPS = 200


def describe(db: Database, name: str, gate: threading.Event) -> Any:
    """Read a session, and end once the gate is open."""
    found = players.describe(db, "alice", name)
    assert gate.wait(PATIENCE)
    return found


async def write(store: Store, chance: Random) -> None:
    """Run a transaction that may change a session, or fail."""
    name = chance.choice(NAMES)
    player = [chance.choice(PLAYERS)]
    host = (ATTEMPT.agent, "i")
    transactions = [
        partial(store.run, sessions.reserve, cold(name)),
        partial(store.run, running),
        partial(store.run, players.join, "alice", name, player, actor=None, now=1.0),
        partial(store.run, players.leave, "alice", name, player, actor=None, now=1.0),
        partial(store.run, players.leave_all, "alice", player, actor=None, now=1.0),
        partial(store.run, sessions.request_stop, "alice", name, actor=OPERATOR, now=2.0),
        partial(store.run, session_ends.end_stopped, *host, 3.0),
        partial(store.run, session_ends.end_all_missing, *host[:1], ["i"], 3.0),
        partial(store.run, session_rows.remove_ended, 4.0),
        partial(store.run, sessions.drop_unattempted, 5.0),
    ]
    transaction: Any = chance.choice(transactions)
    with suppress(TiltyardError):
        await transaction()


@pytest.mark.parametrize("seed", range(5))
async def test_kept_descriptions_are_those_of_the_database(store: Store, seed: int) -> None:
    chance = Random(seed)
    kept = Cache[Any](store.changes, {Topic.SESSION}, most=2)

    def read(name: str, gate: threading.Event) -> Any:
        look = partial(store.look, describe, name, gate)
        return kept.get_or_read(("alice", name), look)

    hits = 0
    is_open = threading.Event()
    is_open.set()
    for _ in range(STEPS):
        gate = threading.Event()
        overtaken = asyncio.create_task(read(chance.choice(NAMES), gate))
        await asyncio.sleep(0)
        await asyncio.gather(*(write(store, chance) for _ in range(chance.randint(1, 3))))
        gate.set()
        await overtaken
        for name in NAMES:
            hits += kept.get(("alice", name)) is not None
            assert await read(name, is_open) == await store.look(players.describe, "alice", name)
    assert hits > 0


@pytest.fixture
async def token(store: Store) -> NewToken:
    made = mint()
    await store.run(tokens.insert_token, "alice", made, {Scope.SESSION_READ}, now=1.0)
    return made


async def test_revoked_token_is_refused_by_the_next_request(store: Store, token: NewToken) -> None:
    use = Accounts(store, SystemClock(), HttpMetrics())
    assert (await use.authenticate(token.text)).account == "alice"
    assert (await use.authenticate(token.text)).account == "alice"
    under_way = asyncio.create_task(use.authenticate(token.text))
    await store.run(tokens.revoke, token.token_id, OPERATOR, 2.0)
    with pytest.raises(UnauthorizedError):
        await use.authenticate(token.text)
    await asyncio.wait({under_way})
    with pytest.raises(UnauthorizedError):
        await use.authenticate(token.text)


async def test_token_of_a_removed_account_is_refused_by_the_next_request(
    store: Store, token: NewToken
) -> None:
    use = Accounts(store, SystemClock(), HttpMetrics())
    await use.authenticate(token.text)
    await store.run(accounts.remove, "alice", OPERATOR, 2.0)
    with pytest.raises(UnauthorizedError):
        await use.authenticate(token.text)


async def test_last_use_of_a_token_is_written_once_a_minute(store: Store, token: NewToken) -> None:
    use = Accounts(store, SystemClock(), HttpMetrics())
    await use.authenticate(token.text)
    first = await store.look(accounts.find_token, token.token_id)
    await use.authenticate(token.text)
    again = await store.look(accounts.find_token, token.token_id)
    assert first is not None
    assert first.last_used is not None
    assert again == first
