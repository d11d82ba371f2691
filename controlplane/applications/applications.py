"""Applications: use cases, and the rules for a repository's name."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from controlplane.domain.access.callers import Caller
from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.privileges import NO_PRIVILEGES, Privileges
from controlplane.domain.applications.registries import Registry
from controlplane.domain.applications.tags import Tag
from controlplane.domain.errors import InvalidRequestError, NotFoundError, Violation
from controlplane.registries.client import DOCKER_HUB
from controlplane.storage.engine.cache import Cache
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications import applications, registries
from tiltyard.images import LONGEST_REPOSITORY
from tiltyard.runtime.clock import Clock

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*\Z", re.ASCII)
MAX_PORTS = 32  # Per application: the engine publishes them one by one, under a lock
MAX_REMEMBERED = 1000  # Applications kept in memory with their tags
MAX_REGIONS = 256  # Per application
MAX_STOP_GRACE = 3600  # Seconds that an application may ask for; a host may allow fewer


Denied = Callable[[str, Privileges], Privileges]
"""Returns which privileges a node pool does not allow; none for unknown node pools."""


Changes = Mapping[str, Any]  # New values of fields of an `Application`, by name


def edited(
    current: Application,
    changes: Changes,
    registries: Mapping[str, Registry],
    denied: Denied,
) -> Application:
    """Apply changes to an application and validate the result. Pure.

    Raises:
        InvalidRequestError: The result is invalid.
    """
    merged = replace(current, **changes)
    is_moved = not changes.keys().isdisjoint({"registry", "repository"})
    registry = registries.get(merged.registry) if is_moved else None
    merged, violations = _checked(merged, registry, denied)
    if not merged.reservation.fits_in(merged.limits):
        wrong = (
            Violation("reservation", "must not be above limits")
            if "reservation" in changes
            else Violation("limits", "must not be below reservation")
        )
        violations.insert(0, wrong)
    if violations:
        raise InvalidRequestError(tuple(violations))
    return merged


def _checked(
    application: Application, registry: Registry | None, denied: Denied
) -> tuple[Application, list[Violation]]:
    """Return an application with its repository's name in the registry, and its violations."""
    violations = []
    refused = denied(application.node_pool, application.privileges)
    for field, what in refused.names.items():
        violations.append(Violation(field, f"the node pool does not allow {what}"))
    if registry is not None:
        repository = local_repository(registry, application.repository)
        if repository is None:
            violations.append(Violation("repository", "is not an OCI repository name"))
        application = replace(application, repository=repository or application.repository)
    return application, violations


class Applications:
    """Use cases on applications."""

    def __init__(self, store: Store, denied: Denied, clock: Clock) -> None:
        self._store = store
        self._denied = denied
        self._clock = clock
        self._tagged = Cache[tuple[Application, tuple[Tag, ...]]](
            store.changes, {Topic.APPLICATION, Topic.TAG}, most=MAX_REMEMBERED
        )

    async def create_application(self, caller: Caller, application: Application) -> None:
        """Create an application of the caller's account."""
        registry = await self._store.look(registries.get, application.registry)
        application, wrong = _checked(application, registry, self._denied)
        now = self._clock.time()
        await self._store.run(
            applications.create, application, actor=caller.actor, now=now, violations=wrong
        )

    async def edit_application(self, caller: Caller, name: str, changes: Changes) -> None:
        """Change an application of the caller's account.

        Running sessions and starts under way are not affected. Enabled tags keep the digest,
        registry and repository that they were enabled with; hosts of added regions or a new node
        pool begin to pull them at once. The warm pool of a removed region is removed, too.
        """
        known = await self._store.look(registries.find)
        await self._store.run(
            applications.edit,
            (caller.account, name),
            lambda current: edited(current, changes, known, self._denied),
            actor=caller.actor,
            now=self._clock.time(),
        )

    async def tagged(self, caller: Caller, name: str) -> tuple[Application, tuple[Tag, ...]]:
        """Read an application with its enabled tags, highest priority first.

        Raises:
            NotFoundError: The account has no application with this name.
        """
        key = caller.account, name
        read = partial(self._store.look, applications.tagged, key)
        found = await self._tagged.get_or_read(key, read)
        if found is None:
            raise NotFoundError("application", name)
        return found

    async def startable(self, caller: Caller, name: str) -> tuple[Application, tuple[Tag, ...]]:
        """Read like `tagged`, if the application may start sessions.

        Raises:
            InvalidRequestError: Its node pool does not allow its privileges.
        """
        application, tags = await self.tagged(caller, name)
        denied = self._denied(application.node_pool, application.privileges)
        if denied != NO_PRIVILEGES:
            refused = " and ".join(denied.names.values())
            text = f"node pool {application.node_pool} does not allow {refused}"
            raise InvalidRequestError((Violation("image", text),))
        return application, tags


def local_repository(registry: Registry, repository: str) -> str | None:
    """Return a repository's name within its registry; None if invalid."""
    for prefix in registry.prefixes:
        if repository.startswith(f"{prefix}/"):
            repository = repository[len(prefix) + 1 :]
            break
    if DOCKER_HUB.intersection(registry.prefixes) and "/" not in repository:
        repository = f"library/{repository}"
    fits = len(repository) <= LONGEST_REPOSITORY and _REPOSITORY.match(repository)
    return repository if fits else None
