"""Sessions as the control plane stores them, and filters of their lists."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from controlplane.domain.access.audit import Actor
from controlplane.domain.sessions.claims import ClaimedStandby
from tiltyard.contract import Identity, Resources, State
from tiltyard.records import record


@record(frozen=True, slots=True)
class NewSession:
    """A session whose id is to be reserved by `actor`; `ttl` in seconds."""

    identity: Identity
    reservation: Resources
    created: float
    actor: Actor
    ttl: float | None = None
    standby: ClaimedStandby | None = None


class Reserved(NamedTuple):
    """The result of the commit of a new session."""

    names_first: bool  # The row names the first attempt of a cold start
    is_audited: bool


class Session(NamedTuple):
    """A session's row; a tuple, since lists make thousands.

    `internal_id`, `agent` and `host` are those of the newest attempt, None and "" before the
    first. `ports`, `labels` and `injected_env` are JSON text.
    """

    account: str
    id: str
    internal_id: str | None
    agent: str | None
    state: State
    application: str
    tag: str
    location: str
    host: str
    ports: str
    labels: str
    external_id: str
    injected_env: str
    created: float
    ended: float | None
    detail: str
    player_count: int


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Filters of a list; None and {} do not filter."""

    account: str
    ended_too: bool = False
    location: str | None = None
    application: str | None = None
    tag: str | None = None
    host: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    more_players_than: int | None = None
    fewer_players_than: int | None = None


@dataclass(frozen=True, slots=True)
class PageFilter:
    """Filters of a page; None does not filter. `before`: the end of the last page."""

    limit: int
    before: int | None = None
    ended_too: bool = False
    account: str | None = None
    agent: str | None = None
    location: str | None = None
    application: str | None = None
