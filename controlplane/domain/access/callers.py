"""Callers of the API, and the tokens that they present."""

from dataclasses import dataclass, field
from typing import NamedTuple

from controlplane.domain.access.audit import Actor, ActorKind
from controlplane.domain.access.tokens import Scope


class Caller(NamedTuple):
    """The sender of a request; `account` is empty for an operator.

    `expire` is the token's expiry in Unix time, None for never.
    """

    account: str
    token_id: str
    scopes: frozenset[Scope]
    address: str = ""
    expire: float | None = None

    @property
    def actor(self) -> Actor:
        """The caller as the audit names it."""
        kind = ActorKind.ACCOUNT if self.account else ActorKind.OPERATOR
        return Actor(self.token_id, self.address, kind)


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token in the database; `caller` is without an address."""

    secret_hash: bytes = field(repr=False)
    caller: Caller
    is_revoked: bool
    last_used: float | None

    def is_good(self, now: float) -> bool:
        """Return whether it is neither revoked nor expired."""
        expire = self.caller.expire
        return not self.is_revoked and (expire is None or expire > now)
