"""Webhooks as callers manage them; `deliverer.py` delivers their events."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from controlplane.domain.access.callers import Caller
from controlplane.domain.addresses import Network
from controlplane.domain.errors import InvalidRequestError, NotFoundError, Violation
from controlplane.domain.events.positions import Position
from controlplane.domain.webhooks.attempts import Attempt
from controlplane.domain.webhooks.messages import TEST_KIND, own_message
from controlplane.domain.webhooks.signing import OVERLAP
from controlplane.domain.webhooks.targets import is_allowed
from controlplane.domain.webhooks.webhook import Webhook, address_in, check_url, new_id
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounting.event_reading import read_after
from controlplane.storage.tables.webhooks import webhooks
from controlplane.storage.tables.webhooks.attempts import find_attempts, record_attempt
from controlplane.storage.tables.webhooks.webhooks import WebhookState
from controlplane.webhooks.attempts import Attempts
from controlplane.webhooks.deliverer import Deliverer
from controlplane.webhooks.open_tests import OpenTests
from controlplane.webhooks.secrets import WebhookSecrets
from tiltyard.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Use cases on webhooks. A webhook belongs to the account, whichever token has made it.

    A change returns once the deliveries use it, or the database has failed.
    """

    store: Store
    secrets: WebhookSecrets
    attempts: Attempts
    deliverer: Deliverer
    clock: Clock
    plain_http: bool = False
    networks: Sequence[Network] = ()
    open_tests: OpenTests = field(default_factory=OpenTests)

    async def create(self, caller: Caller, wanted: Webhook) -> tuple[WebhookState, str]:
        """Create a webhook; return it with its secret, which is returned only now.

        Raises:
            InvalidRequestError: Its URL is not acceptable.
            ConflictError: The account has too many.
        """
        self._check_url(wanted.url)
        webhook = replace(wanted, id=new_id(), account=caller.account, created=self.clock.time())
        secret, sealed = await self.secrets.new(webhook.account, webhook.id)
        await self.store.run(webhooks.create, webhook, sealed, actor=caller.actor)
        return await self.get(caller, webhook.id), secret

    async def all_of(self, caller: Caller) -> list[WebhookState]:
        """Return the webhooks of the caller's account in the order of their creation."""
        return await self.store.look(webhooks.states_of, caller.account)

    async def of_accounts(self, account: str | None) -> list[WebhookState]:
        """Return the webhooks of an account, or of all (None), for an operator."""
        return await self.store.read(webhooks.states_of, account)

    async def get(self, caller: Caller, webhook_id: str) -> WebhookState:
        """Return a webhook of the caller's account.

        Raises:
            NotFoundError: There is none.
        """
        found = await self.store.look(webhooks.states_of, caller.account, webhook_id)
        if not found:
            raise NotFoundError("webhook", webhook_id)
        return found[0]

    async def change(self, caller: Caller, wanted: Webhook) -> WebhookState:
        """Replace the configuration of a webhook of the caller's account. Idempotent.

        Raises:
            InvalidRequestError: Its URL is not acceptable.
        """
        self._check_url(wanted.url)
        wanted = replace(wanted, account=caller.account)
        await self.store.run(webhooks.change, wanted, actor=caller.actor, now=self.clock.time())
        await self.deliverer.caught_up()
        return await self.get(caller, wanted.id)

    async def remove(self, caller: Caller, webhook_id: str) -> None:
        """Remove a webhook of the caller's account."""
        key = (caller.account, webhook_id)
        await self.store.run(webhooks.remove, key, actor=caller.actor, now=self.clock.time())
        await self.deliverer.caught_up()

    async def rotate(self, caller: Caller, webhook_id: str) -> tuple[str, float]:
        """Make another secret; return it, and until when the former one signs as well."""
        secret, sealed = await self.secrets.new(caller.account, webhook_id)
        now = self.clock.time()
        until = now + OVERLAP
        key = (caller.account, webhook_id)
        await self.store.run(
            webhooks.rotate, key, sealed, until=until, actor=caller.actor, now=now
        )
        await self.deliverer.caught_up()
        return secret, until

    async def replay(self, caller: Caller, webhook_id: str, first: Position) -> None:
        """Deliver the events from `first` on again, or skip those before it.

        Raises:
            EventsGoneError: Events from there on were removed, or there is no such event yet.
        """
        state = await self.get(caller, webhook_id)
        before = Position(first.epoch, first.number - 1)
        await self.store.read(read_after, state.webhook.filter, before, 1)
        key = (caller.account, webhook_id)
        now = self.clock.time()
        await self.store.run(webhooks.replay, key, first, actor=caller.actor, now=now)
        await self.deliverer.caught_up()

    async def test(self, caller: Caller, webhook_id: str) -> Attempt:
        """Send a message of a kind of its own now, once, even if the webhook is disabled.

        Raises:
            AccountBusyError: The account has too many tests under way.
            StoppingError: The control plane is shutting down.
        """
        state = await self.get(caller, webhook_id)
        sealed = await self.store.look(webhooks.secrets_of, webhook_id)
        if sealed is None:
            raise NotFoundError("webhook", webhook_id)
        message = own_message(
            webhook_id,
            f"test-{new_id()}",
            kind=TEST_KIND,
            time=self.clock.time(),
            data={"webhook": webhook_id},
        )
        async with self.open_tests.opened(caller.account):
            attempt = await self.attempts.make(state.webhook, sealed, message, "test")
        number = await self.store.run(record_attempt, webhook_id, attempt)
        return replace(attempt, number=number)

    async def deliveries(
        self, caller: Caller, webhook_id: str, *, before: int | None, limit: int, failed: bool
    ) -> tuple[Sequence[Attempt], int | None]:
        """Return attempts, the newest first, and the number before which there are more."""
        await self.get(caller, webhook_id)
        found = await self.store.read(
            find_attempts, webhook_id, before=before, limit=limit + 1, failed=failed
        )
        if len(found) <= limit:
            return found, None
        return found[:limit], found[limit - 1].number

    def _check_url(self, url: str) -> None:
        try:
            check_url(url, plain_http=self.plain_http)
        except ValueError as error:
            raise InvalidRequestError((Violation("url", str(error)),)) from None
        address = address_in(url)
        if address and not is_allowed(address, self.networks):
            raise InvalidRequestError((Violation("url", "must have a public address"),))
