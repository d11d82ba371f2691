"""Tokens made from tokens: a revocation ends all of them."""

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.access.tokens import Scope, mint
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access.tokens import find, insert_token, revoke

NOW = 1000.0
OPERATOR = Actor("operator")


async def made_from(store: Store, parent: str | None, name: str) -> str:
    """Insert a token of alice; return its id."""
    token = mint()
    scopes = {Scope.SESSION_READ}
    await store.run(insert_token, "alice", token, scopes, now=NOW, name=name, parent=parent)
    return token.token_id


@pytest.mark.parametrize("generations", [1, 2, 3, 10])
async def test_revocation_ends_tokens_of_all_generations(store: Store, generations: int) -> None:
    other = await made_from(store, None, "other")
    family = [await made_from(store, None, "root")]
    for number in range(generations):
        family.append(await made_from(store, family[-1], f"{number}"))
    revoked = await store.run(revoke, family[0], OPERATOR, NOW + 1)
    assert set(revoked) == set(family)
    good = await store.run(find, "alice", NOW + 1, ended_too=False)
    assert [token.id for token in good] == [other]


async def test_revocation_ends_all_tokens_of_one_generation(store: Store) -> None:
    root = await made_from(store, None, "root")
    children = {await made_from(store, root, name) for name in ("one", "two", "three")}
    assert set(await store.run(revoke, root, OPERATOR, NOW + 1)) == {root, *children}


async def test_revocation_spares_the_maker_of_a_token(store: Store) -> None:
    root = await made_from(store, None, "root")
    child = await made_from(store, root, "child")
    assert await store.run(revoke, child, OPERATOR, NOW + 1) == [child]
    good = await store.run(find, "alice", NOW + 1, ended_too=False)
    assert [token.id for token in good] == [root]
