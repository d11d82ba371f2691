"""Attempts to deliver messages, of all webhooks."""

import asyncio

from controlplane.domain.webhooks.attempts import Answer, Attempt
from controlplane.domain.webhooks.messages import Message
from controlplane.domain.webhooks.retries import Outcome
from controlplane.domain.webhooks.signing import signed_headers
from controlplane.domain.webhooks.webhook import Webhook
from controlplane.metrics.webhooks import WebhookMetrics
from controlplane.registries.endpoint import UnusableError
from controlplane.storage.tables.webhooks.webhooks import SealedSecrets
from controlplane.webhooks.secrets import WebhookSecrets
from controlplane.webhooks.sender import Sender
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.fair_queue import FairSlots
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

AT_ONCE = 256  # Attempts under way, of which an account has a share
SPACING = 0.003
"""Seconds between the begins of two attempts: with TLS, one takes up to 2 ms of the event loop."""


class Attempts:
    """Signs and sends messages, a bounded number at a time."""

    def __init__(
        self,
        sender: Sender,
        secrets: WebhookSecrets,
        *,
        clock: Clock,
        metrics: WebhookMetrics,
        spacing: float = SPACING,
    ) -> None:
        self._sender = sender
        self._secrets = secrets
        self._clock = clock
        self._metrics = metrics
        self._spacing = spacing
        self._slots = FairSlots(lambda: AT_ONCE)
        self._turns = FairSlots(lambda: 1)
        metrics.in_progress.set_function(lambda: self._slots.used)

    async def make(
        self, webhook: Webhook, sealed: SealedSecrets, message: Message, event: str
    ) -> Attempt:
        """Send a message once, and return the attempt; `event` is the id that it is shown with."""
        async with self._slots.hold(webhook.account):
            await self._take_turn(webhook.account)
            now = self._clock.time()
            answer = await self._send(webhook, sealed, message, now)
        self._metrics.ended(answer)
        return Attempt(event, message.kind, now, answer)

    async def _take_turn(self, account: str) -> None:
        """Wait for the turn of an account, so that other work on the event loop has its time."""
        if not self._spacing:
            return
        if not self._turns.take(account):
            await self._turns.wait(account)
        asyncio.get_running_loop().call_later(self._spacing, self._turns.release, account)

    async def _send(
        self, webhook: Webhook, sealed: SealedSecrets, message: Message, now: float
    ) -> Answer:
        try:
            secrets = self._secrets.in_use(webhook.account, webhook.id, sealed, now)
        except UnusableError as error:
            log.warning("cannot sign a message", webhook=webhook.id, error=error.detail)
            return Answer(Outcome.UNSIGNED, 0.0, error="its secret cannot be read: rotate it")
        headers = signed_headers(secrets, message.id, int(now), message.body)
        return await self._sender.send(webhook.account, webhook.url, headers, message.body)
