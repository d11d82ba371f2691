"""All parts of webhooks, with their common start and end."""

from random import Random

from controlplane.events.event_log import EventLog
from controlplane.metrics.webhooks import WebhookMetrics
from controlplane.registries.vault import Vault
from controlplane.settings.model import Config
from controlplane.storage.engine.store import Store
from controlplane.webhooks.attempts import Attempts
from controlplane.webhooks.deliverer import Deliverer
from controlplane.webhooks.secrets import WebhookSecrets
from controlplane.webhooks.sender import Sender
from controlplane.webhooks.webhooks import Webhooks
from tiltyard.runtime.clock import Clock


class WebhookService:
    """Owns the deliveries, the connections to endpoints and the thread that seals secrets."""

    def __init__(
        self,
        config: Config,
        *,
        store: Store,
        event_log: EventLog,
        vault: Vault,
        clock: Clock,
        random: Random,
        metrics: WebhookMetrics,
    ) -> None:
        networks = config.networks_of_webhooks()
        self._sender = Sender(clock, networks=networks)
        self._secrets = WebhookSecrets(vault)
        attempts = Attempts(self._sender, self._secrets, clock=clock, metrics=metrics)
        self.deliverer = Deliverer(
            store, event_log, attempts, clock=clock, random=random, metrics=metrics
        )
        self.webhooks = Webhooks(
            store=store,
            secrets=self._secrets,
            attempts=attempts,
            deliverer=self.deliverer,
            clock=clock,
            plain_http=config.webhook_plain_http,
            networks=networks,
        )

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self.deliverer.run()

    async def close(self) -> None:
        """Release the threads. Idempotent."""
        self._sender.close()
        await self._secrets.close()
