"""Messages of webhooks: `{"type": …, "timestamp": …, "data": …}`.

`data` is the event as readers of the log get it, in the same JSON.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.positions import Position
from controlplane.domain.events.stored import StoredEvent
from controlplane.domain.events.webhooks import WebhookGap
from controlplane.domain.webhooks.attempts import Gap
from controlplane.domain.webhooks.webhook import Webhook

MAX_BODY = 20_000  # Bytes; Standard Webhooks asks for less than 20 kB

TEST_KIND = "webhook.test"
"""The type of a message that a caller requests. It is no event, and in no log."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message: `id` is unique per event and webhook, and the same in each attempt."""

    id: str
    kind: str
    body: bytes


def event_message(webhook: str, event_id: str, *, kind: str, time: float, event: str) -> Message:
    """Make the message of an event; `event` is its JSON, `time` in seconds since the epoch.

    An event whose message would exceed MAX_BODY is sent without its `data`, as `dataOmitted`.
    """
    body = _body(kind, time, event)
    if len(body) >= MAX_BODY:
        fields: dict[str, Any] = json.loads(event)
        fields["data"] = None
        fields["dataOmitted"] = True
        body = _body(kind, time, json.dumps(fields))
    return Message(f"msg_{webhook}_{event_id}", kind, body)


def message_of(webhook: str, event: StoredEvent) -> Message:
    """Make the message of an event of the log."""
    return event_message(
        webhook,
        str(event.position),
        kind=event.kind,
        time=event.row.time_ms / 1000,
        event=event.for_account,
    )


def gap_message(webhook: Webhook, gap: Gap, epoch: int) -> Message:
    """Make the message of the event about a gap, which may not match the webhook's filter."""
    event_id = str(Position(epoch, gap.number))
    event = {
        "id": event_id,
        "type": WebhookGap.kind,
        "version": WebhookGap.version,
        "time": round(gap.time * 1000),
        "account": webhook.account,
        "object": webhook.id,
        "actor": ITSELF.name,
        "data": {"from": gap.first, "to": gap.last, "cause": gap.cause},
    }
    return event_message(
        webhook.id,
        event_id,
        kind=WebhookGap.kind,
        time=gap.time,
        event=json.dumps(event),
    )


def own_message(
    webhook: str, part: str, *, kind: str, time: float, data: dict[str, Any]
) -> Message:
    """Make a message that is no event of the log; `part` makes its id unique."""
    return Message(f"msg_{webhook}_{part}", kind, _body(kind, time, json.dumps(data)))


def _body(kind: str, time: float, data: str) -> bytes:
    shown = datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")
    timestamp = shown.replace("+00:00", "Z")
    return f'{{"type": "{kind}", "timestamp": "{timestamp}", "data": {data}}}'.encode()
