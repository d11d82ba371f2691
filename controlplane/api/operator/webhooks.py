"""Webhooks of all accounts, for operators."""

from aiohttp import web

from controlplane.api.operations.fields import Text
from controlplane.api.operations.operation import Listing, operation
from controlplane.api.operations.queries import Query
from controlplane.api.operations.services import services_of
from controlplane.api.operations.shown import Millis, Shown, at
from controlplane.domain.webhooks.webhook import DisabledCause


class WebhooksQuery(Query):
    """The query of GET /operator/webhook."""

    account: Text | None = None


class AccountWebhook(Shown):
    """A webhook of an account; times in milliseconds since the epoch.

    `host`: of its URL, whose path is not shown, since it can be secret. The other fields are those
    that the account sees.
    """

    account: str = at("webhook.account")
    id: str = at("webhook.id")
    host: str = at("webhook.host")
    enabled: bool = at("webhook.is_enabled")
    disabled_because: DisabledCause | None = at("webhook.disabled")
    created: Millis = at("webhook.created")
    failed_events: int = at("failed")
    failing_since: Millis | None
    next_attempt: Millis | None


@operation(key="webhooks")
async def list_all_webhooks(request: web.Request, query: WebhooksQuery) -> Listing[AccountWebhook]:
    """List the webhooks of an account, or of all, in the order of their creation."""
    found = await services_of(request).webhooks.of_accounts(query.account)
    return Listing(found, AccountWebhook.show)
