"""The audit: who changed what, and queries for its lines."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ActorKind(StrEnum):
    """Whose token an actor has; its value is shown to accounts in place of other actors' names."""

    ACCOUNT = "account"
    OPERATOR = "operator"
    PROGRAM = "controlplane"  # No token: the control plane itself, or an agent that reports


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a change: a token's id and client address, or a program's name."""

    name: str
    address: str = ""
    kind: ActorKind = ActorKind.PROGRAM


ITSELF = Actor("controlplane")


INITIALISER = Actor("init")  # The actor of the first accounts and tokens


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filters of a page; None does not filter. `kind` may be a topic, such as `token`."""

    limit: int
    before: int | None = None
    account: str | None = None
    kind: str | None = None
    object: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A line of the audit."""

    sequence: int
    time: float
    kind: str
    account: str
    actor: str
    address: str
    object: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Lines of the audit, newest first.

    `before` is that of the next page, None after the oldest. A page can have fewer lines than its
    limit, and a next page, since it looks at a bounded number of events.
    """

    lines: tuple[AuditLine, ...]
    before: int | None
