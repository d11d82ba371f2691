"""Bodies and responses of webhooks."""

from typing import Annotated

from pydantic import BeforeValidator, Field
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.event_queries import account_kind
from controlplane.api.operations.fields import NO_CONTROLS, Name, Text
from controlplane.api.operations.shown import Maybe, Millis, Shown, at
from controlplane.domain.errors import InvalidRequestError, Violation
from controlplane.domain.events.positions import POSITION_PATTERN, Position
from controlplane.domain.webhooks.webhook import (
    MAX_KINDS,
    MAX_LABELS,
    MAX_URL,
    URL_PATTERN,
    DisabledCause,
    Webhook,
)
from tiltyard.runtime.settings import checked

Kind = Annotated[str, Field(min_length=1, max_length=64), checked(account_kind)]
LabelText = Annotated[str, Field(max_length=256)]


class WebhookBody(Body):
    """The body of POST and PUT; `null` counts as absent.

    Without `kinds`, `image`, `location` and `labels` all events of the account are delivered, but
    for those of players, whose kinds must be named; the last three choose events of sessions and
    players alone. `kinds` has kinds, or all of a topic (`session.*`). `ordered` and
    `enabled` are true by default.
    """

    max_bytes = 64 * 1024

    url: Annotated[str, Field(max_length=MAX_URL, pattern=f"^{URL_PATTERN}$")]
    description: Annotated[str, Field(max_length=256, pattern=NO_CONTROLS)] | None = None
    kinds: Annotated[list[Kind], Field(max_length=MAX_KINDS)] | None = None
    image: Name | None = None
    location: Name | None = None
    labels: Annotated[dict[str, LabelText], Field(max_length=MAX_LABELS)] | None = None
    ordered: bool | None = None
    enabled: bool | None = None

    def webhook(self, webhook_id: str = "") -> Webhook:
        """Convert to a webhook, whose account is not set."""
        return Webhook(
            id=webhook_id,
            account="",
            url=self.url,
            created=0.0,
            description=self.description or "",
            kinds=tuple(dict.fromkeys(self.kinds or ())),
            image=self.image or "",
            location=self.location or "",
            labels=self.labels or {},
            ordered=self.ordered is not False,
            disabled=DisabledCause.REQUESTED if self.enabled is False else None,
        )


class ReplayBody(Body):
    """The body of POST /webhook/{id}/replay: the id of the first event to deliver."""

    max_bytes = 64 * 1024

    event: Annotated[str, Field(max_length=40, pattern=POSITION_PATTERN)]

    @property
    def position(self) -> Position:
        """The event to begin with.

        Raises:
            InvalidRequestError: There is no such event in any log.
        """
        found = Position.parse(self.event)
        if found is None or not found.number:
            raise InvalidRequestError((Violation("event", "must be the id of an event"),))
        return found


class ShownWebhook(Shown):
    """A webhook; times in milliseconds since the epoch.

    `position`: the id of an event up to which everything is delivered, but for `failedEvents` that
    wait for another attempt; the next one is at `nextAttempt`. `failingSince`: when the endpoint
    failed first after the last delivery. `disabledBecause` is `requested`, `gone` or `failing`.
    `formerSecretUntil`: until when messages are signed with the former secret, too.
    """

    id: str = at("webhook.id")
    url: str = at("webhook.url")
    description: str = at("webhook.description")
    kinds: list[str] = at("webhook.kinds")
    image: Maybe = at("webhook.image")
    location: Maybe = at("webhook.location")
    labels: dict[str, str] = at("webhook.labels")
    ordered: bool = at("webhook.ordered")
    enabled: bool = at("webhook.is_enabled")
    disabled_because: DisabledCause | None = at("webhook.disabled")
    created: Millis = at("webhook.created")
    position: Annotated[str, BeforeValidator(str)]
    failed_events: int = at("failed")
    failing_since: Millis | None
    next_attempt: Millis | None
    former_secret_until: Millis | None = at("former_until")


class CreatedWebhook(ShownWebhook):
    """A new webhook; its secret is shown only now."""

    secret: Text = ""


class RotatedSecret(TypedDict):
    """A new secret, shown only now; until when the former one signs as well, in milliseconds."""

    secret: str
    formerSecretUntil: int


class Delivery(Shown):
    """An attempt; `time` in milliseconds since the epoch.

    `number` counts the attempts of the webhook. `event` is the id of the event, or `test`.
    `status` is null without an answer; `answer` is the first KiB of its body.
    """

    number: int
    event: str
    type: str = at("kind")
    time: Millis
    duration_ms: Millis = at("answer.seconds")
    outcome: str = at("answer.outcome")
    status: int | None = at("answer.status")
    error: Maybe = at("answer.error")
    answer: str = at("answer.text")
