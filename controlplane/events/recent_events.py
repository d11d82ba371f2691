"""The newest events in memory."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.positions import Position
from controlplane.domain.events.stored import StoredEvent
from controlplane.storage.tables.accounting.event_reading import EventBatch

MOST_EVENTS = 5000
MOST_BYTES = 16 * 1024 * 1024


class RecentEvents:
    """All events after `first` up to `newest`, at most MOST_EVENTS and MOST_BYTES of them."""

    def __init__(self, begin: Position) -> None:
        self.first = begin
        self.newest = begin
        self._all = deque[StoredEvent]()
        self._by_account: dict[str, deque[StoredEvent]] = {}
        self._bytes = 0

    def add(self, events: Sequence[StoredEvent]) -> None:
        """Add the events that follow `newest`, and forget the oldest ones."""
        for event in events:
            self._all.append(event)
            self._by_account.setdefault(event.account, deque()).append(event)
            self._bytes += event.size
            self.newest = event.position
        while len(self._all) > MOST_EVENTS or self._bytes > MOST_BYTES:
            self._forget_oldest()

    def read(self, wanted: EventFilter, after: Position, limit: int) -> EventBatch | None:
        """Return what `read_after` does; None if the position is not in memory."""
        if not self._covers(after):
            return None
        matching = (event for event in self._newer(wanted.account, after) if wanted.matches(event))
        found = tuple(islice(matching, limit))
        if len(found) == limit:
            return EventBatch(found, found[-1].position, more=True)
        return EventBatch(found, self.newest)

    def last_before_news(self, account: str | None, after: Position) -> Position:
        """Return the last position, at or after another one, before an event of an account.

        It is the newest one if there is no such event, and `after` itself if that is not known.
        """
        if not self._covers(after):
            return after
        news = next(self._newer(account, after), None)
        return self.newest if news is None else Position(after.epoch, news.position.number - 1)

    def _covers(self, position: Position) -> bool:
        return self.first <= position <= self.newest and position.epoch == self.newest.epoch

    def _newer(self, account: str | None, after: Position) -> Iterator[StoredEvent]:
        """Return the events of an account, None for all, after a position."""
        events = self._all if account is None else self._by_account.get(account)
        if not events or events[-1].position <= after:
            return iter(())
        newer = list(takewhile(lambda event: event.position > after, reversed(events)))
        return reversed(newer)

    def _forget_oldest(self) -> None:
        oldest = self._all.popleft()
        self._bytes -= oldest.size
        self.first = oldest.position
        of_account = self._by_account[oldest.account]
        of_account.popleft()
        if not of_account:
            del self._by_account[oldest.account]
