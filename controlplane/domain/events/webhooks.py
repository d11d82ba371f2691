"""Events of webhooks. URLs are not in them, since some contain secrets."""

from collections.abc import Sequence
from dataclasses import field

from controlplane.domain.events.event import JSON_NAME, CallerEvent
from tiltyard.records import record


@record(frozen=True, slots=True)
class WebhookEvent(CallerEvent):
    """An event of a webhook."""

    object_type = "the webhook's id"


@record(frozen=True, slots=True, kw_only=True)
class WebhookCreated(WebhookEvent):
    """A webhook was created. `host` is the host and the port of its URL."""

    kind = "webhook.created"

    host: str


@record(frozen=True, slots=True, kw_only=True)
class WebhookChanged(WebhookEvent):
    """A webhook was changed in these fields."""

    kind = "webhook.changed"

    fields: Sequence[str]


@record(frozen=True, slots=True, kw_only=True)
class WebhookRotated(WebhookEvent):
    """A webhook has a new secret. The former one signs until `formerUntil`, in milliseconds."""

    kind = "webhook.rotated"

    former_until: int


@record(frozen=True, slots=True, kw_only=True)
class WebhookReplayed(WebhookEvent):
    """The events of a webhook are delivered again from the event `from` on."""

    kind = "webhook.replayed"

    from_event: str = field(metadata={JSON_NAME: "from"})


@record(frozen=True, slots=True, kw_only=True)
class WebhookEnabled(WebhookEvent):
    """A webhook was enabled, and goes on where it was disabled."""

    kind = "webhook.enabled"


@record(frozen=True, slots=True, kw_only=True)
class WebhookDisabled(WebhookEvent):
    """A webhook was disabled.

    `cause` is `requested` by a caller, `gone` if its endpoint has answered 410, or `failing` if it
    has failed for five days. `status` is that of its last answer, or null.
    """

    kind = "webhook.disabled"

    cause: str
    status: int | None


@record(frozen=True, slots=True, kw_only=True)
class WebhookGap(WebhookEvent):
    """A webhook does not deliver the events from `from` to `to`, null if it is not known.

    `cause` is `retention` if they were removed before they were delivered; `restored` if the
    database is an older copy, and what came after this copy is lost; or `failed` if an event was
    given up after five days.
    """

    kind = "webhook.gap"

    first: str = field(metadata={JSON_NAME: "from"})
    last: str | None = field(metadata={JSON_NAME: "to"})
    cause: str


@record(frozen=True, slots=True, kw_only=True)
class WebhookRemoved(WebhookEvent):
    """A webhook was removed."""

    kind = "webhook.removed"
