"""Random trees of delegated tokens against a model: never more scopes, never a longer life."""

from __future__ import annotations

import asyncio
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.catalog.accounts import Accounts
from controlplane.catalog.delegation import Delegated, Delegation
from controlplane.catalog.open_streams import OpenStreams
from controlplane.domain.durations import parse_duration
from controlplane.domain.errors import CannotDelegateError, ConflictError, UnauthorizedError
from controlplane.domain.tokens import ACCOUNT_SCOPES, OPERATOR_SCOPES, Scope, grants, parse
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounts import AccountStore, Caller
from controlplane.storage.tables.tokens import TokenStore
from tests.support.fake_clock import FakeClock

OPERATOR = Caller("", "operator", OPERATOR_SCOPES)


@dataclass(frozen=True)
class Make:
    maker: int
    name: str
    scopes: frozenset[Scope]
    minutes: int | None


@dataclass(frozen=True)
class Revoke:
    token: int


@dataclass(frozen=True)
class Pass:
    minutes: int


@dataclass
class Token:
    """What the model knows of a token; `expire` in minutes."""

    text: str
    name: str
    parent: Token | None
    scopes: frozenset[Scope]
    expire: float
    revoked: bool = False

    def good(self, now: int) -> bool:
        """Return whether it is good, asking every ancestor, as the store does not need to."""
        alive = not self.revoked and now < self.expire
        return alive and (self.parent is None or self.parent.good(now))

    def holds(self, scope: Scope) -> bool:
        implied = scope is Scope.SESSION_PLAYERS and Scope.SESSION_START in self.scopes
        return scope in self.scopes or implied


NUMBERS = st.integers(0, 30)
STEPS = st.one_of(
    st.builds(
        Make,
        NUMBERS,
        st.sampled_from("abcdef"),
        # Mostly everything: else trees would hardly grow.
        st.one_of(st.just(ACCOUNT_SCOPES), st.frozensets(st.sampled_from(Scope))),
        st.none() | st.integers(1, 100),
    ),
    st.builds(Revoke, NUMBERS),
    st.builds(Pass, st.integers(1, 60)),
)


class World:
    """The real store and use cases beside the model."""

    def __init__(self, store: Store) -> None:
        self.clock = clock = FakeClock(60.0)
        accounts = AccountStore(store)
        self.accounts = Accounts(accounts, clock)
        self.delegation = Delegation(TokenStore(store), OpenStreams(accounts, clock), clock)
        self.tokens: list[Token] = []

    @property
    def minute(self) -> int:
        return int(self.clock.time() // 60)

    async def fill(self) -> None:
        made = await self.accounts.initialise(["alice"])
        never = float("inf")
        self.tokens = [Token(made.accounts["alice"], "initial", None, ACCOUNT_SCOPES, never)]

    async def take(self, step: Make | Revoke | Pass) -> None:
        match step:
            case Pass(minutes):
                self.clock.stall(minutes * 60)
            case Revoke(number):
                await self._revoke(self.tokens[number % len(self.tokens)])
            case Make():
                await self._make(self.tokens[step.maker % len(self.tokens)], step)

    async def _revoke(self, token: Token) -> None:
        presented = parse(token.text)
        assert presented is not None
        await self.delegation.revoke(OPERATOR, presented.token_id)
        token.revoked = True

    async def _make(self, maker: Token, step: Make) -> None:
        refusal = self._refusal(maker, step)
        if refusal is not None:
            with pytest.raises(refusal):
                await self._ask(maker, step)
            return
        text = await self._ask(maker, step)
        wish = float("inf") if step.minutes is None else self.minute + step.minutes
        self.tokens.append(Token(text, step.name, maker, step.scopes, min(wish, maker.expire)))

    async def _ask(self, maker: Token, step: Make) -> str:
        caller = await self.accounts.authenticate(maker.text)
        lifetime = None if step.minutes is None else step.minutes * 60
        wanted = Delegated(step.name, step.scopes, lifetime)
        return (await self.delegation.make(caller, wanted)).text

    def _refusal(self, maker: Token, step: Make) -> type[Exception] | None:
        if not maker.good(self.minute):
            return UnauthorizedError
        if not all(maker.holds(scope) for scope in step.scopes):
            return CannotDelegateError
        taken = {token.name for token in self.tokens if token.good(self.minute)}
        return ConflictError if step.name in taken else None

    async def check(self) -> None:
        for token in self.tokens:
            try:
                caller = await self.accounts.authenticate(token.text)
            except UnauthorizedError:
                assert not token.good(self.minute)
                continue
            assert token.good(self.minute)
            assert caller.scopes == token.scopes
            if token.parent is not None:
                maker = await self.accounts.authenticate(token.parent.text)
                assert all(grants(maker.scopes, scope) for scope in caller.scopes)


async def _run(steps: list[Make | Revoke | Pass]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "test.db")
        await store.open()
        try:
            world = World(store)
            await world.fill()
            for step in steps:
                await world.take(step)
                await world.check()
            rows = await store.run(
                lambda db: db.execute(
                    "SELECT child.expire_ms, parent.expire_ms, child.revoked_ms, parent.revoked_ms"
                    " FROM token AS child JOIN token AS parent ON child.parent = parent.id"
                ).fetchall()
            )
        finally:
            await store.close()
    for child_end, parent_end, child_revoked, parent_revoked in rows:
        assert parent_end is None or (child_end is not None and child_end <= parent_end)
        assert parent_revoked is None or child_revoked is not None


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_no_tree_of_tokens_gives_more_than_its_root(steps: list[Make | Revoke | Pass]) -> None:
    asyncio.run(_run(steps))


def _oracle(text: str) -> int | None:
    """Read a duration as docs/api.md defines it."""
    if not text or not re.fullmatch(r"(?:[0-9]{1,6}h)?(?:[0-9]{1,6}m)?", text):
        return None
    parts = {part[-1]: int(part[:-1]) for part in re.findall(r"[0-9]+[hm]", text)}
    minutes = parts.get("h", 0) * 60 + parts.get("m", 0)
    return max(1, minutes) * 60 if minutes <= 8760 * 60 else None


@given(
    st.from_regex(r"\A[0-9]{0,7}h?[0-9]{0,7}m?\Z")
    | st.text(alphabet="0123456789hmHM ٣٠-+.\n\0", max_size=12)
)
def test_durations_are_as_decided(text: str) -> None:
    expected = _oracle(text)
    try:
        assert parse_duration(text) == expected
    except ValueError:
        assert expected is None
