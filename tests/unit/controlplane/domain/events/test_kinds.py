"""The kinds of events."""

import re

from controlplane.domain.access.audit import Actor
from controlplane.domain.access.quotas import Quota
from controlplane.domain.events.accounts import (
    AccountCreated,
    QuotaLimits,
    TokenCreated,
    TokenRevoked,
)
from controlplane.domain.events.agents import AgentEnrolled
from controlplane.domain.events.event import Event
from controlplane.domain.events.kinds import KINDS
from controlplane.domain.events.sessions import SessionDuplicate, SessionSubject
from controlplane.domain.sessions.adoption import PlacedSession

ACTOR = Actor("t", "192.0.2.1")


def kinds_below(event: type[Event]) -> list[type[Event]]:
    below = [kind for each in event.__subclasses__() for kind in (each, *kinds_below(each))]
    return [kind for kind in below if kind.__module__.startswith("controlplane.")]


def test_every_kind_is_listed_under_a_name_of_its_own() -> None:
    named = {event.__name__ for event in kinds_below(Event) if "kind" in vars(event)}
    assert {event.__name__ for event in KINDS.values()} == named
    assert all(re.fullmatch(r"[a-z_]+\.[a-z_]+", name) for name in KINDS)


def test_data_has_names_of_json() -> None:
    event = AgentEnrolled("", "a0", ACTOR, 1.0, region="r", node_pool="p", serial="1")
    assert event.data() == {"region": "r", "nodePool": "p", "serial": "1"}


def test_data_has_names_that_fields_choose() -> None:
    revoked = TokenRevoked("", "t", ACTOR, 1.0, revoked_with="u")
    created = TokenCreated("", "t", ACTOR, 1.0, name="n", scopes=["s"], expires=None)
    assert revoked.data() == {"with": "u"}
    assert created.data() == {"name": "n", "scopes": ["s"], "expires": None}


def test_data_has_records_as_objects() -> None:
    quota = QuotaLimits.of(Quota(2, 1_500_000_000, 512 * 1024**2))
    event = AccountCreated("a", "a", ACTOR, 1.0, quota=quota)
    assert event.data() == {"quota": {"sessions": 2, "cpu": 1.5, "ram": 512.0}}


def test_records_in_data_have_names_of_json() -> None:
    kept = PlacedSession("host-1", "id-1")
    subject = SessionSubject("a", "s", "game", "v1", "local", "{}")
    named = subject.named(ACTOR, 1.0)
    event = SessionDuplicate(*named, stopped=PlacedSession("host-2", "id-2"), kept=kept)
    assert event.data()["kept"] == {"agent": "host-1", "internalId": "id-1"}
