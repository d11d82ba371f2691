"""Events of accounts and their tokens."""

from collections.abc import Sequence
from dataclasses import field
from typing import Self

from controlplane.domain.access.quotas import Quota
from controlplane.domain.events.event import JSON_NAME, Audience, CallerEvent, Event, Retention
from tiltyard.contract import MEBI, NANO
from tiltyard.records import record


@record(frozen=True, slots=True)
class QuotaLimits:
    """A quota as the API shows it: sessions, cores and MiB; None is no limit."""

    sessions: int | None
    cpu: float | None
    ram: float | None

    @classmethod
    def of(cls, quota: Quota) -> Self:
        """Convert the quota of an account."""
        cpus = None if quota.nano_cpus is None else quota.nano_cpus / NANO
        memory = None if quota.memory_bytes is None else quota.memory_bytes / MEBI
        return cls(quota.sessions, cpus, memory)


@record(frozen=True, slots=True)
class AccountEvent(Event):
    """An event of an account."""

    audience = Audience.BOTH
    retention = Retention.AGE
    object_type = "the account"


@record(frozen=True, slots=True, kw_only=True)
class AccountCreated(AccountEvent):
    """An account was created."""

    kind = "account.created"

    quota: QuotaLimits


@record(frozen=True, slots=True, kw_only=True)
class AccountChanged(AccountEvent):
    """The quota of an account was replaced."""

    kind = "account.changed"

    quota: QuotaLimits


@record(frozen=True, slots=True, kw_only=True)
class AccountRemoved(AccountEvent):
    """An account was removed, and `tokens` of its tokens were revoked."""

    kind = "account.removed"
    audience = Audience.OPERATOR

    tokens: int


@record(frozen=True, slots=True)
class TokenEvent(CallerEvent):
    """An event of a token."""

    object_type = "the token's id"


@record(frozen=True, slots=True, kw_only=True)
class TokenCreated(TokenEvent):
    """A token was created, of an account or of operators.

    `expires` is in milliseconds since the epoch, or null.
    """

    kind = "token.created"

    name: str
    scopes: Sequence[str]
    expires: int | None


@record(frozen=True, slots=True, kw_only=True)
class TokenRevoked(TokenEvent):
    """A token was revoked, by itself or with the token that it descends from (`with`)."""

    kind = "token.revoked"

    revoked_with: str = field(metadata={JSON_NAME: "with"})
