"""The newest events in memory."""

import pytest

from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.positions import Position
from controlplane.domain.events.stored import EventRow, StoredEvent
from controlplane.events import recent_events
from controlplane.events.recent_events import RecentEvents

ALL = EventFilter(None, is_operator=True)


def stored(number: int, account: str = "a", data: str = "{}") -> StoredEvent:
    kind = "session.ready"
    return StoredEvent(1, EventRow(number, 1, kind, 1, account, "", "account", "", "s", data))


def numbers(recent: RecentEvents, wanted: EventFilter, after: int, limit: int = 9) -> object:
    batch = recent.read(wanted, Position(1, after), limit)
    return batch and ([event.position.number for event in batch.events], batch.after.number)


@pytest.fixture
def recent() -> RecentEvents:
    """Events 11 to 14 of two accounts in turn."""
    made = RecentEvents(Position(1, 10))
    made.add([stored(11), stored(12, "b"), stored(13), stored(14, "b")])
    return made


def test_reads_events_of_an_account_in_order(recent: RecentEvents) -> None:
    assert numbers(recent, EventFilter("a"), 10) == ([11, 13], 14)
    assert numbers(recent, EventFilter("b"), 12) == ([14], 14)
    assert numbers(recent, ALL, 11) == ([12, 13, 14], 14)
    assert numbers(recent, EventFilter("c"), 10) == ([], 14)


def test_read_ends_at_its_limit(recent: RecentEvents) -> None:
    assert numbers(recent, EventFilter("a"), 10, limit=1) == ([11], 11)
    assert numbers(recent, EventFilter("a"), 11, limit=1) == ([13], 13)


def test_other_positions_are_not_in_memory(recent: RecentEvents) -> None:
    assert numbers(recent, ALL, 9) is None
    assert numbers(recent, ALL, 15) is None
    assert recent.read(ALL, Position(0, 12), 9) is None
    assert recent.read(ALL, Position(2, 12), 9) is None


def test_last_position_before_news_of_an_account(recent: RecentEvents) -> None:
    assert recent.last_before_news("a", Position(1, 10)) == (1, 10)
    assert recent.last_before_news("a", Position(1, 11)) == (1, 12)
    assert recent.last_before_news("a", Position(1, 13)) == (1, 14)
    assert recent.last_before_news(None, Position(1, 12)) == (1, 12)
    assert recent.last_before_news("a", Position(1, 9)) == (1, 9)


def test_oldest_events_go_beyond_the_number(
    recent: RecentEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_events, "MOST_EVENTS", 2)
    recent.add([stored(15)])
    assert numbers(recent, ALL, 13) == ([14, 15], 15)
    assert numbers(recent, ALL, 12) is None
    assert numbers(recent, EventFilter("b"), 13) == ([14], 15)


def test_oldest_events_go_beyond_the_bytes(
    recent: RecentEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_events, "MOST_BYTES", 40_000)
    recent.add([stored(15, data="x" * 10_000)])
    assert numbers(recent, ALL, 10) == ([11, 12, 13, 14, 15], 15)
    recent.add([stored(16, data="x" * 10_000)])
    assert numbers(recent, ALL, 15) == ([16], 16)
    assert numbers(recent, ALL, 14) is None
