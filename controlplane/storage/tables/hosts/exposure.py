"""The data that an agent's host has had access to, as far as the database records it.

Rows of ended sessions stay until their retention ends. Warm pools and registry logins are those of
the applications that are now in the region and node pool of the host.
"""

from typing import Any

from controlplane.domain.hosts.exposure import (
    ExposedApplication,
    ExposedLogin,
    ExposedPool,
    Exposure,
)
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.applications.application_regions import IN_REGION
from controlplane.storage.tables.hosts.fleet import get_agent
from tiltyard.contract import EndReason
from tiltyard.runtime.clock import from_ms

_PLACED = (
    "SELECT account, application, count(*), count(*) FILTER ("
    "WHERE ended_ms IS NULL OR end_reason=:lost),"
    " min(created_ms), max(created_ms) FROM session WHERE agent=:agent"
    " GROUP BY account, application ORDER BY max(created_ms) DESC, account, application"
)
_HERE = f"application.node_pool=:node_pool AND {IN_REGION}"
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
