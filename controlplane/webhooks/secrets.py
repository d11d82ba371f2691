"""Secrets of webhooks, sealed in the database with the key of `registries/vault.py`."""

from controlplane.domain.webhooks.signing import new_secret
from controlplane.registries.endpoint import UnusableError
from controlplane.registries.vault import Vault
from controlplane.storage.tables.webhooks.webhooks import SealedSecrets
from tiltyard.runtime.tasks import Threads


class WebhookSecrets:
    """Makes, seals and unseals secrets. A secret is sealed for one webhook of one account."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._threads = Threads(1, "webhook secrets")

    async def new(self, account: str, webhook: str) -> tuple[str, bytes]:
        """Make a secret; return it as its account gets it, and sealed.

        Raises:
            StoreError: The key can be neither read nor created.
        """
        secret = new_secret()
        return secret, await self._threads.run(self._vault.seal, webhook, account, secret)

    def in_use(
        self, account: str, webhook: str, sealed: SealedSecrets, now: float
    ) -> tuple[str, ...]:
        """Return the secrets that sign messages now, the newest first.

        Raises:
            UnusableError: The present one cannot be unsealed.
        """
        current = self._vault.unseal(webhook, account, sealed.current)
        if sealed.former is None or sealed.former_until is None or sealed.former_until <= now:
            return (current,)
        try:
            return current, self._vault.unseal(webhook, account, sealed.former)
        except UnusableError:
            return (current,)

    async def close(self) -> None:
        """Stop the thread. Idempotent."""
        await self._threads.close()
