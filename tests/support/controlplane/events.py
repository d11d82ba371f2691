"""Events of kinds that only tests have."""

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.event import Audience, Event, Retention
from tiltyard.records import record


def probe(kind: str, account: str, subject: str, *, actor: Actor, now: float) -> Event:
    """An event of any kind, without data."""
    probe_kind: type[Event]
    probe_kind = type("Probe", (Event,), {"kind": kind, "audience": Audience.BOTH})
    return probe_kind(account, subject, actor, now)


@record(frozen=True, slots=True, kw_only=True)
class Padded(Event):
    """An event with as much data as it is given."""

    kind = "test.padded"
    audience = Audience.OPERATOR
    retention = Retention.AGE
    object_type = "none"

    padding: str
