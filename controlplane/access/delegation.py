"""Delegation: creation, listing and revocation of tokens."""

from dataclasses import dataclass

from controlplane.domain.access.callers import Caller
from controlplane.domain.access.tokens import NewToken, Token, TokenRequest, grants, mint
from controlplane.domain.errors import CannotDelegateError
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import tokens
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach, no_failpoint


@dataclass(frozen=True, slots=True)
class Delegation:
    """Use cases on tokens. Methods for operators rely on the API to check the scope."""

    store: Store
    clock: Clock
    reach: Reach = no_failpoint

    async def make(
        self, caller: Caller, wanted: TokenRequest, account: str | None = None
    ) -> NewToken:
        """Create a token of the caller's account; it expires no later than the caller's.

        For an operator of any `account`, if given; that is no child of the operator's.

        Raises:
            CannotDelegateError: The caller does not hold a scope of its child.
        """
        lacking = sorted(scope for scope in wanted.scopes if not grants(caller.scopes, scope))
        if lacking and account is None:
            raise CannotDelegateError(", ".join(lacking))
        token = mint()
        now = self.clock.time()
        await self.store.run(
            tokens.make, caller.actor, token, wanted=wanted, now=now, account=account
        )
        await self.reach("token.made")
        return token

    async def all(self, account: str | None, *, ended_too: bool) -> list[Token]:
        """Return the tokens of an account, of operators ("") or of all (None), for an operator."""
        now = self.clock.time()
        return await self.store.read(tokens.find, account, now, ended_too=ended_too)

    async def revoke(self, caller: Caller, token_id: str) -> list[str]:
        """Revoke a token and all made from it, for an operator; return the ids. Idempotent."""
        ended = await self.store.run(tokens.revoke, token_id, caller.actor, self.clock.time())
        await self.reach("token.revoked")
        return ended
