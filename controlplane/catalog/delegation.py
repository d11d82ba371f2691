"""Delegation: tokens that callers make from their own or for others, and the end of them."""

from dataclasses import dataclass

from controlplane.catalog.open_streams import OpenStreams
from controlplane.domain.errors import CannotDelegateError
from controlplane.domain.tokens import NewToken, Scope, grants, mint
from controlplane.storage.engine.store import Store
from controlplane.storage.tables import tokens
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.tokens import Token, TokenRequest
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach, no_failpoint


@dataclass(frozen=True, slots=True)
class Delegated:
    """What a caller wants to hand on; `lifetime` in seconds, None for as long as may be."""

    name: str
    scopes: frozenset[Scope]
    lifetime: int | None = None


@dataclass(frozen=True, slots=True)
class Delegation:
    """Use cases on tokens made from tokens, and on tokens that operators make and end.

    Calls for operators do not check it: the API has checked that the caller is one.
    """

    store: Store
    streams: OpenStreams
    clock: Clock
    reach: Reach = no_failpoint

    async def make(self, caller: Caller, wanted: Delegated) -> NewToken:
        """Make a token of the caller's account, whose text is stored nowhere.

        It never has more scopes than the caller's token, nor lives longer: an `expires_after`
        beyond the caller's own end is cut to it.

        Raises:
            CannotDelegateError: The caller does not hold a scope.
            ConflictError: A good token of the account has the name, or it has too many.
            UnauthorizedError: The caller's token was revoked meanwhile.
        """
        lacking = sorted(scope for scope in wanted.scopes if not grants(caller.scopes, scope))
        if lacking:
            raise CannotDelegateError(", ".join(lacking))
        token, now = mint(), self.clock.time()
        await self.store.run(tokens.make, caller.actor, token, _request(wanted, now), now)
        await self.reach("token.made")
        return token

    async def make_for(self, caller: Caller, account: str, wanted: Delegated) -> NewToken:
        """Make a token of any account for an operator; its text is stored nowhere.

        It is no child of the operator's token: that can be replaced and this one stays.

        Raises:
            NotFoundError: There is no such account.
            ConflictError: A good token of the account has the name, or it has too many.
            UnauthorizedError: The caller's token was revoked meanwhile.
        """
        token, now = mint(), self.clock.time()
        request = _request(wanted, now)
        await self.store.run(tokens.make_for, account, caller.actor, token, request, now)
        return token

    async def all(self, account: str | None, *, ended_too: bool) -> list[Token]:
        """Read the tokens of an account, of operators ("") or of all (None), for an operator."""
        now = self.clock.time()
        return await self.store.read(tokens.find, account, now, ended_too=ended_too)

    async def revoke(self, caller: Caller, token_id: str) -> list[str]:
        """End a token of any account, and all that were made from it, for an operator.

        At once: their next requests are refused and their streams are broken off. Idempotent;
        returns the ids of the tokens that this call ended.

        Raises:
            NotFoundError: There is no such token.
        """
        then, now = self.streams.end_of, self.clock.time()
        ended = await self.store.run_then(then, tokens.revoke, token_id, caller.actor, now)
        await self.reach("token.revoked")
        return ended


def _request(wanted: Delegated, now: float) -> TokenRequest:
    expire = None if wanted.lifetime is None else now + wanted.lifetime
    return TokenRequest(wanted.name, wanted.scopes, expire)
