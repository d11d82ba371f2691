"""What a compromised host has had access to, and its revocation, for operators."""

from aiohttp import web

from controlplane.api.operations.operation import Answer, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.operations.shown import Count, First1000, Millis, Shown, at
from controlplane.storage.tables.hosts import exposure


class ExposedApplication(Shown):
    """An application whose sessions ran on a host; it had the environment of their starts.

    `running`: sessions that are live, or were given up with the host. `first` and `last`: when the
    first and the last one were created, in milliseconds since the epoch.
    """

    account: str
    image: str = at("application")
    sessions: int
    running: int
    first: Millis
    last: Millis


class ExposedWarmPool(Shown):
    """A warm pool that the host may have had orders of, with the environment of its standbys."""

    account: str
    image: str = at("application")
    location: str


class ExposedLogin(Shown):
    """A registry login that the host may have had to pull images."""

    name: str
    address: str
    username: str


class AgentExposure(Shown):
    """What an agent's host has had access to, as far as the database remembers.

    Each list has at most 1000 of its number: `accountCount`, `applicationCount` (the latest
    first), `warmPoolCount`, `registryLoginCount`.
    """

    agent: str
    sessions: int
    running: int
    accounts: First1000[str]
    account_count: Count = at("accounts")
    applications: First1000[ExposedApplication]
    application_count: Count = at("applications")
    warm_pools: First1000[ExposedWarmPool]
    warm_pool_count: Count = at("warm_pools")
    registry_logins: First1000[ExposedLogin]
    registry_login_count: Count = at("registry_logins")


@operation()
async def get_exposure(request: web.Request) -> Answer[AgentExposure]:
    """Describe what an agent's host has had access to, even after the agent was revoked."""
    return await _exposure(request)


@operation()
async def revoke_agent(request: web.Request) -> Answer[AgentExposure]:
    """Revoke the trust in an agent whose host is compromised, and describe what it had access to.

    Idempotent, cannot be undone. Its streams are closed and it is not connected to again. Its
    sessions are `dead`. It stays listed until it is removed.
    """
    name = request.match_info["agent"]
    await services_of(request).enrolment.revoke(caller_of(request), name)
    return await _exposure(request)


async def _exposure(request: web.Request) -> Answer[AgentExposure]:
    store = services_of(request).store
    found = await store.read(exposure.find, request.match_info["agent"])
    return Answer(AgentExposure.show(found))
