"""Applications: use cases, and the rules for a repository's name."""

import re
from dataclasses import replace

from controlplane.account_store import Caller
from controlplane.application_store import (
    Application,
    ApplicationStore,
    NameTaken,
    UnknownReferences,
)
from controlplane.clock import Clock
from controlplane.errors import ConflictError, InvalidRequestError, NotFoundError, Violation
from controlplane.fleet_store import FleetStore, Registry

MAX_REPOSITORY = 255
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*\Z", re.ASCII)
_DOCKER_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


class Applications:
    """Use cases on applications."""

    def __init__(self, store: ApplicationStore, fleet: FleetStore, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock

    async def create(self, caller: Caller, application: Application) -> None:
        """Make an application of the caller's account.

        Raises:
            InvalidRequestError: It names what no operator configured, or no OCI repository.
            ConflictError: The account has an application of that name.
        """
        registry = await self._fleet.registry(application.registry)
        if registry is not None:
            repository = local_repository(registry, application.repository)
            if repository is None:
                violation = Violation("repository", "is not an OCI repository name")
                raise InvalidRequestError((violation,))
            application = replace(application, repository=repository)
        outcome = await self._store.create(application, caller.token_id, self._clock.now_ms())
        if isinstance(outcome, UnknownReferences):
            raise _unknown(outcome, application.regions)
        if isinstance(outcome, NameTaken):
            raise ConflictError(f"an application named {application.name} exists already")

    async def get(self, caller: Caller, name: str) -> Application:
        """Read one application of the caller's account.

        Raises:
            NotFoundError: The account has none of that name.
        """
        application = await self._store.get(caller.account, name)
        if application is None:
            raise NotFoundError("application", name)
        return application

    async def all_of(self, caller: Caller) -> list[Application]:
        """Read all applications of the caller's account."""
        return await self._store.all_of(caller.account)


def local_repository(registry: Registry, repository: str) -> str | None:
    """Give a repository's name within its registry; None when it cannot be one."""
    for prefix in (registry.address, *registry.aliases):
        if repository.startswith(f"{prefix}/"):
            repository = repository[len(prefix) + 1 :]
            break
    if _DOCKER_HUB & {registry.address, *registry.aliases} and "/" not in repository:
        repository = f"library/{repository}"
    fits = len(repository) <= MAX_REPOSITORY and _REPOSITORY.match(repository)
    return repository if fits else None


def _unknown(unknown: UnknownReferences, regions: tuple[str, ...]) -> InvalidRequestError:
    violations = [
        Violation(f"regions[{index}]", "unknown region")
        for index, name in enumerate(regions)
        if name in unknown.regions
    ]
    if unknown.node_pool is not None:
        violations.insert(0, Violation("nodePool", "unknown node pool"))
    if unknown.registry is not None:
        violations.insert(0, Violation("registry", "unknown registry"))
    return InvalidRequestError(tuple(violations))
