"""What an agent's host has had access to, as far as the database remembers.

Ended sessions are remembered until they are removed. Warm pools and registry logins are those
that hosts of its region and node pool have had for the applications of today.
"""

from dataclasses import dataclass
from typing import Any

from controlplane.storage.engine.store import Database
from controlplane.storage.tables.fleet import get_agent
from tiltyard.contract import EndReason
from tiltyard.runtime.clock import from_ms


@dataclass(frozen=True, slots=True)
class ExposedApplication:
    """An application whose sessions ran on a host, which got the parameters of their starts.

    `running`: sessions that are live, or were given up when the host was lost or revoked.
    """

    account: str
    application: str
    sessions: int
    running: int
    first: float | None
    last: float | None


@dataclass(frozen=True, slots=True)
class ExposedPool:
    """A warm pool whose orders the host may have had, with the environment of its standbys."""

    account: str
    application: str
    location: str


@dataclass(frozen=True, slots=True)
class ExposedLogin:
    """A registry whose login the host may have had to pull images."""

    name: str
    address: str
    username: str


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a host has had access to."""

    agent: str
    applications: list[ExposedApplication]
    warm_pools: list[ExposedPool]
    registry_logins: list[ExposedLogin]

    @property
    def sessions(self) -> int:
        """The number of sessions that were placed on the host."""
        return sum(each.sessions for each in self.applications)

    @property
    def running(self) -> int:
        """The number of sessions that may still run there."""
        return sum(each.running for each in self.applications)

    @property
    def accounts(self) -> list[str]:
        """The accounts that are concerned, sorted."""
        started = {each.account for each in self.applications}
        return sorted(started | {pool.account for pool in self.warm_pools})


_PLACED = (
    "SELECT account, application, count(*), sum(ended_ms IS NULL OR end_reason=:lost),"
    " min(created_ms), max(created_ms) FROM session WHERE agent=:agent"
    " GROUP BY account, application ORDER BY max(created_ms) DESC, account, application"
)
_HERE = (
    "application.node_pool=:node_pool"
    " AND EXISTS (SELECT 1 FROM json_each(application.regions) WHERE value=:region)"
)
_POOLS = (
    "SELECT warm_pool.account, application.name, location FROM warm_pool"  # noqa: S608
    " JOIN application ON application.account=warm_pool.account"
    f" AND application.name=warm_pool.application WHERE location=:region AND {_HERE}"
    " ORDER BY warm_pool.account, application.name"
)
_LOGINS = (
    "SELECT name, address, username FROM registry WHERE sealed_password IS NOT NULL"  # noqa: S608
    f" AND name IN (SELECT registry FROM application WHERE {_HERE}) ORDER BY name"
)


def find(db: Database, name: str) -> Exposure:
    """Read what an agent's host has had access to, even if it was revoked.

    Raises:
        NotFoundError: There is no agent of that name, or it was removed.
    """
    row = get_agent(db, name)
    values: dict[str, Any] = {
        "agent": name,
        "region": row.region,
        "node_pool": row.node_pool,
        "lost": EndReason.HOST_LOST,
    }
    applications = [
        ExposedApplication(account, application, sessions, running, from_ms(first), from_ms(last))
        for account, application, sessions, running, first, last in db.execute(_PLACED, values)
    ]
    return Exposure(
        name,
        applications,
        [ExposedPool(*pool) for pool in db.execute(_POOLS, values)],
        [ExposedLogin(*login) for login in db.execute(_LOGINS, values)],
    )
