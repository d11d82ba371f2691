"""Delegation: tokens that callers make from their own, and the end of them."""

from dataclasses import dataclass

from controlplane.account_store import Caller
from controlplane.clock import Clock
from controlplane.errors import (
    CannotDelegateError,
    ConflictError,
    NotFoundError,
    UnauthorizedError,
)
from controlplane.token_store import MakerEnded, TokenNameTaken, TokenRequest, TokenStore
from controlplane.tokens import Scope, grants, mint


@dataclass(frozen=True, slots=True)
class Delegated:
    """What a caller wants to hand on; `lifetime` in seconds, None for as long as its own."""

    name: str
    scopes: frozenset[Scope]
    lifetime: int | None = None


class Delegation:
    """Use cases on tokens made from tokens."""

    def __init__(self, store: TokenStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def make(self, caller: Caller, wanted: Delegated) -> str:
        """Make a token of the caller's account and return its text, which is stored nowhere.

        It never has more scopes than the caller's token, nor lives longer: an `expires_after`
        beyond the caller's own end is cut to it.

        Raises:
            CannotDelegateError: The caller does not hold a scope.
            ConflictError: A good token of the account has the name.
            UnauthorizedError: The caller's token was revoked meanwhile.
        """
        lacking = sorted(scope for scope in wanted.scopes if not grants(caller.scopes, scope))
        if lacking:
            raise CannotDelegateError(", ".join(lacking))
        now_ms = self._clock.now_ms()
        expire_ms = None if wanted.lifetime is None else now_ms + wanted.lifetime * 1000
        request = TokenRequest(wanted.name, wanted.scopes, expire_ms)
        token = mint()
        match await self._store.make(caller.actor, token, request, now_ms):
            case MakerEnded():
                raise UnauthorizedError
            case TokenNameTaken():
                raise ConflictError("a token of that name exists already")
        return token.text

    async def revoke(self, caller: Caller, token_id: str) -> list[str]:
        """End a token of any account, and all that were made from it, at once.

        Idempotent; returns the ids of the tokens that this call ended. For operators: whoever
        calls this has checked that the caller is one.

        Raises:
            NotFoundError: There is no such token.
        """
        ended = await self._store.revoke(token_id, caller.actor, self._clock.now_ms())
        if ended is None:
            raise NotFoundError("token", token_id)
        return ended
