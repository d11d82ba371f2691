"""Which events a reader of the log gets."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.event import Retention
from controlplane.domain.events.filters import ACCOUNT_PATTERNS, ALL_PATTERNS, EventFilter
from controlplane.domain.events.sessions import SessionStarting, SessionSubject
from controlplane.domain.events.stored import EventRow, StoredEvent
from tiltyard.contract import Identity

READY: dict[str, Any] = {"image": "game", "location": "eu", "labels": {"mode": "duel", "n": "1"}}


def stored(kind: str = "session.ready", account: str = "a", **data: Any) -> StoredEvent:
    row = EventRow(7, 1, kind, 1, account, "t", "account", "", "s", json.dumps(data))
    return StoredEvent(3, row)


@pytest.mark.parametrize(
    ("pattern", "is_known"),
    [
        ("session.ready", True),
        ("session.*", True),
        ("session", False),
        ("session.", False),
        ("*", False),
        ("session.unknown", False),
        ("sess.*", False),
    ],
)
def test_patterns_are_kinds_or_topics(pattern: str, is_known: bool) -> None:
    assert (pattern in ALL_PATTERNS) is is_known


@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_account_can_filter_by_what_it_can_get(pattern: str) -> None:
    is_for_accounts = bool(EventFilter("a", kinds=(pattern,)).kind_names)
    assert (pattern in ACCOUNT_PATTERNS) is is_for_accounts


def test_account_gets_its_own_events_alone() -> None:
    assert EventFilter("a").matches(stored())
    assert not EventFilter("a").matches(stored(account="b"))
    assert not EventFilter("a").matches(stored("region.created", account=""))


def test_account_gets_no_event_for_operators() -> None:
    duplicate = stored("session.duplicate")
    assert not EventFilter("a").matches(duplicate)
    assert not EventFilter("a", kinds=("session.*",)).matches(duplicate)
    assert EventFilter("a", is_operator=True).matches(duplicate)


def test_operators_get_kinds_of_other_releases() -> None:
    other = stored("other.release")
    assert EventFilter(None, is_operator=True).matches(other)
    assert not EventFilter("a").matches(other)


def test_kinds_choose() -> None:
    wanted = EventFilter("a", kinds=("session.ended", "token.*"))
    assert wanted.matches(stored("session.ended"))
    assert wanted.matches(stored("token.created"))
    assert not wanted.matches(stored("session.ready"))


@pytest.mark.parametrize(
    ("chosen", "matches"),
    [
        ({"image": "game"}, True),
        ({"image": "other"}, False),
        ({"location": "eu"}, True),
        ({"location": "us"}, False),
        ({"labels": {"mode": "duel"}}, True),
        ({"labels": {"mode": "duel", "n": "1"}}, True),
        ({"labels": {"mode": "duel", "n": "2"}}, False),
        ({"labels": {"other": "duel"}}, False),
        ({"session": "s"}, True),
        ({"session": "t"}, False),
        ({"image": "game", "location": "us"}, False),
    ],
)
def test_fields_of_sessions_choose(chosen: dict[str, Any], matches: bool) -> None:
    assert EventFilter("a", **chosen).matches(stored(**READY)) is matches


def test_labels_that_were_too_long_match_no_filter() -> None:
    event = stored(**READY | {"labels": None})
    assert EventFilter("a", image="game").matches(event)
    assert not EventFilter("a", labels={"mode": "duel"}).matches(event)


@pytest.mark.parametrize(
    "chosen",
    [
        {"session": "s"},
        {"image": "game"},
        {"labels": {"a": "b"}},
    ],
)
def test_filters_of_sessions_choose_no_other_events(chosen: dict[str, Any]) -> None:
    wanted = EventFilter(None, is_operator=True, **chosen)
    assert not wanted.matches(stored("tag.enabled", **READY))


def test_filter_names_the_classes_of_retention_that_it_reads() -> None:
    assert EventFilter("a", session="s").retentions == {Retention.SESSIONS}
    assert EventFilter("a", kinds=("application.*",)).retentions == {Retention.ACTS}
    others = set(Retention) - {Retention.PLAYERS}
    assert EventFilter(None, is_operator=True).retentions == others
    assert EventFilter("a").retentions == others
    assert EventFilter("a", kinds=("players.left",)).retentions == {Retention.PLAYERS}


@pytest.mark.parametrize(
    ("chosen", "matches"),
    [
        ({}, False),
        ({"session": "s"}, False),
        ({"image": "game"}, False),
        ({"kinds": ("session.*",)}, False),
        ({"kinds": ("players.*",)}, True),
        ({"kinds": ("session.*", "players.joined")}, True),
        ({"kinds": ("players.*",), "session": "s", "labels": {"mode": "duel"}}, True),
        ({"kinds": ("players.*",), "session": "t"}, False),
        ({"kinds": ("players.left",)}, False),
    ],
)
@pytest.mark.parametrize("is_operator", [False, True])
def test_players_are_for_readers_who_name_them(
    chosen: dict[str, Any], is_operator: bool, matches: bool
) -> None:
    wanted = EventFilter("a", is_operator=is_operator, **chosen)
    assert wanted.matches(stored("players.joined", **READY)) is matches


@given(image=st.text(), labels=st.dictionaries(st.text(), st.text(), max_size=3))
def test_data_of_a_matching_event_has_the_texts_of_the_filter(
    image: str, labels: dict[str, str]
) -> None:
    identity = Identity("a", "s", image, "v1", "eu", labels=labels)
    event = SessionStarting(*SessionSubject.of(identity).named(ITSELF, 1.0))
    wanted = EventFilter("a", image=image, location="eu", labels=labels)
    text = event.data_json()
    assert wanted.matches(stored(event.kind, **json.loads(text)))
    assert all(each in text for each in wanted.data_texts)
