"""Webhooks of an account."""

from aiohttp import web

from controlplane.admission.request_slots import release_request_slot
from controlplane.api.operations.operation import Answer, Listing, Paged, operation
from controlplane.api.operations.queries import Flag, PageBefore, Query, UpTo1000
from controlplane.api.operations.services import SERVICES, caller_of, services_of
from controlplane.api.resources.webhook_bodies import (
    CreatedWebhook,
    Delivery,
    ReplayBody,
    RotatedSecret,
    ShownWebhook,
    WebhookBody,
)
from tiltyard.runtime.clock import to_ms


class DeliveryQuery(Query):
    """The query of GET /webhook/{id}/delivery; `before`: that of the previous page."""

    failed: Flag = False
    before: PageBefore | None = None
    limit: UpTo1000 = 100


@operation(201)
async def create_webhook(request: web.Request, body: WebhookBody) -> Answer[CreatedWebhook]:
    """Create a webhook, which delivers the events from now on.

    It belongs to the account: it stays when the token that has made it ends.
    """
    created, secret = await services_of(request).webhooks.create(
        caller_of(request), body.webhook()
    )
    return Answer(CreatedWebhook.show(created, secret=secret))


@operation(key="webhooks")
async def list_webhooks(request: web.Request) -> Listing[ShownWebhook]:
    """List the webhooks of the account in the order of their creation."""
    found = await services_of(request).webhooks.all_of(caller_of(request))
    return Listing(found, ShownWebhook.show)


@operation()
async def get_webhook(request: web.Request) -> Answer[ShownWebhook]:
    """Show a webhook, and how far it has come."""
    found = await services_of(request).webhooks.get(caller_of(request), _id(request))
    return Answer(ShownWebhook.show(found))


@operation()
async def replace_webhook(request: web.Request, body: WebhookBody) -> Answer[ShownWebhook]:
    """Replace the configuration of a webhook; absent fields get their defaults.

    An enabled webhook goes on where it was disabled. Failed events are attempted again at once.
    """
    changed = await services_of(request).webhooks.change(
        caller_of(request), body.webhook(_id(request))
    )
    return Answer(ShownWebhook.show(changed))


@operation()
async def remove_webhook(request: web.Request) -> None:
    """Remove a webhook; an attempt under way is ended."""
    await services_of(request).webhooks.remove(caller_of(request), _id(request))


@operation(key="deliveries", beside=Paged)
async def list_deliveries(request: web.Request, query: DeliveryQuery) -> Listing[Delivery]:
    """List the attempts of a webhook, newest first; with `failed=true` the failed ones alone.

    Kept are its last 1,000, and the failed ones of a day.
    """
    found, before = await services_of(request).webhooks.deliveries(
        caller_of(request),
        _id(request),
        before=query.before,
        limit=query.limit,
        failed=query.failed,
    )
    return Listing(found, Delivery.show, {"before": before})


@operation()
async def test_webhook(request: web.Request) -> Answer[Delivery]:
    """Send a message of the type `webhook.test` now, and show the attempt.

    It is sent once, also if the webhook is disabled, and changes nothing else.
    """
    webhooks = services_of(request).webhooks
    release_request_slot()
    return Answer(Delivery.show(await webhooks.test(caller_of(request), _id(request))))


async def end_tests(app: web.Application) -> None:
    """End the tests under way; a shutdown hook."""
    app[SERVICES].webhooks.open_tests.stop()


@operation()
async def replay_events(request: web.Request, body: ReplayBody) -> None:
    """Continue with an event: deliver events again, or skip those before it.

    Messages have the same ids as before, so that a receiver can recognise them.
    """
    await services_of(request).webhooks.replay(caller_of(request), _id(request), body.position)


@operation()
async def rotate_secret(request: web.Request) -> Answer[RotatedSecret]:
    """Make another secret of a webhook.

    For a day, each message is signed with both the new and the former one.
    """
    secret, until = await services_of(request).webhooks.rotate(caller_of(request), _id(request))
    return Answer({"secret": secret, "formerSecretUntil": to_ms(until)})


def _id(request: web.Request) -> str:
    return request.match_info["id"]
