"""Credentials of the configured registries, for the control plane and for hosts."""

from collections.abc import Iterable
from dataclasses import replace

from controlplane.domain.applications.registries import Registry
from controlplane.domain.errors import InvalidRequestError, StoreError, Violation
from controlplane.domain.hosts.contract import RegistryLogin
from controlplane.pki.certificates import check_authorities
from controlplane.registries.endpoint import Endpoint, UnusableError
from controlplane.registries.vault import Vault
from controlplane.settings.registries import RegistryConfig
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications.registries import at
from tiltyard.runtime.tasks import Threads

_AUTH_HOSTS = {"registry-1.docker.io": ("auth.docker.io",), "registry.gitlab.com": ("gitlab.com",)}
"""Token services of well-known registries."""


class Logins:
    """Seals and unseals registry credentials. Owns a thread for blocking work."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault
        self._threads = Threads(1, "registry logins")

    @property
    def vault(self) -> Vault:
        """The key of the passwords."""
        return self._vault

    async def seal_declared(self, declared: Iterable[RegistryConfig]) -> list[Registry]:
        """Read the key, and return the registries of the settings file with sealed passwords."""

        def work() -> list[Registry]:
            self._vault.load()
            return [self._with_sealed_password(entry) for entry in declared]

        return await self._threads.run(work)

    def _with_sealed_password(self, entry: RegistryConfig) -> Registry:
        if not entry.password:
            return entry.registry
        sealed = self._vault.seal(entry.address, entry.username, entry.password)
        return replace(entry.registry, sealed=sealed)

    async def close(self) -> None:
        """Stop the thread. Idempotent."""
        await self._threads.close()

    async def ready(self, wanted: Registry, password: str | None) -> Registry:
        """Check a registry's certificates and return it with its password sealed.

        Raises:
            InvalidRequestError: Invalid certificates.
            StoreError: The key can be neither read nor created.
        """

        def work() -> Registry:
            if wanted.ca:
                check_authorities(wanted.ca)
            if password is None:
                return wanted
            sealed = self._vault.seal(wanted.address, wanted.username, password)
            return replace(wanted, sealed=sealed)

        try:
            return await self._threads.run(work)
        except ValueError as error:
            raise InvalidRequestError((Violation("ca", str(error)),)) from None

    def endpoint_of(self, registry: Registry) -> Endpoint:
        """Return the address and credentials of a registry.

        Raises:
            UnusableError: The password cannot be unsealed.
        """
        return Endpoint(
            registry.address,
            username=registry.username,
            password=self._password(registry),
            auth_hosts=(*_AUTH_HOSTS.get(registry.address, ()), *registry.auth_hosts),
            private=registry.private,
            ca=registry.ca,
        )

    async def login_for(self, image: str) -> RegistryLogin | None:
        """Return the credentials for `address/repository@digest`, None if none are configured.

        Raises:
            StoreError: The database failed, or the password cannot be unsealed.
        """
        registry = await self._store.look(at, image.partition("/")[0])
        if registry is None or not registry.username:
            return None
        try:
            return RegistryLogin(registry.username, self._password(registry))
        except UnusableError as error:
            text = f"cannot log in to registry {registry.name!r}: {error.detail}"
            raise StoreError(text) from None

    def _password(self, registry: Registry) -> str:
        if not registry.username:
            return ""
        return self._vault.unseal(registry.address, registry.username, registry.sealed)
