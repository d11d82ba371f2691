"""The deliveries of one webhook: events of the log in order, and failed events that are due.

While no attempt is under way, every event up to `position` is delivered or in `failed`.
"""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace

from controlplane.domain.events.positions import Position
from controlplane.domain.events.stored import StoredEvent
from controlplane.domain.webhooks.attempts import GAP, Answer, FailedEvent, Progress
from controlplane.domain.webhooks.retries import Decision, Disable, Done, Failing, Retry, decide

MOST_FAILED = 1000
"""Failed events of a webhook without an order, at which it reads no further events."""

LONGEST_WAIT = 30 * 3600.0  # Seconds until a retry at most, whatever the wall clock says


class Backlog:
    """The events of a webhook that are not delivered yet, and when they are attempted.

    Numbers are those of events; GAP is the message about a gap. Times with `at` are of the
    monotonic clock, others are wall time.
    """

    def __init__(self, progress: Progress, *, ordered: bool, now: float, at: float) -> None:
        self.read_to = progress.position
        self._ordered = ordered
        self._read: deque[StoredEvent] = deque()
        self._failed = dict(progress.failed)
        self._since = progress.failing_since
        self._under_way: dict[int, float] = {}
        """The time of each event that is being attempted, by its number."""
        if progress.gap is not None and GAP not in self._failed:
            self._failed[GAP] = FailedEvent(GAP, 0, now, now)
        self._due_at = {
            number: at + min(max(0.0, each.due - now), LONGEST_WAIT)
            for number, each in self._failed.items()
        }

    @property
    def wants_more(self) -> bool:
        """Whether further events of the log can be read."""
        if self._ordered and (self._failed or self._under_way):
            return False
        return not self._read and len(self._failed) < MOST_FAILED

    @property
    def is_failing(self) -> bool:
        """Whether the endpoint has failed since its last delivery."""
        return self._since is not None

    @property
    def failed_count(self) -> int:
        """The number of failed events."""
        return len(self._failed)

    @property
    def oldest(self) -> float | None:
        """The time of the oldest undelivered event or of its first failure; None without such."""
        return min(self._waiting_since(), default=None)

    @property
    def position(self) -> Position:
        """The position that can be recorded: events up to it are delivered or in `failed`."""
        first = self._under_way.keys() - self._failed.keys()
        first |= {event.position.number for event in self._read}
        if not first:
            return self.read_to
        return Position(self.read_to.epoch, min(first) - 1)

    def add(self, events: Collection[StoredEvent], read_to: Position) -> None:
        """Add events of the log, and what was read of it."""
        self._read.extend(event for event in events if event.position.number not in self._failed)
        self.read_to = read_to

    def next_failed(self, at: float) -> int | None:
        """Return a failed event that is due and not under way; if ordered, the first one alone."""
        number = self._next_failed()
        return number if number is not None and self._due_at[number] <= at else None

    def seconds_left(self, at: float) -> float | None:
        """Return the seconds until the next failed event is due; None if there is none."""
        number = self._next_failed()
        return None if number is None else max(0.0, self._due_at[number] - at)

    def next_event(self) -> StoredEvent | None:
        """Return the next event of the log, which is then under way; None if there is none yet."""
        if not self._read or (self._ordered and (self._failed or self._under_way)):
            return None
        event = self._read.popleft()
        self._under_way[event.position.number] = event.row.time_ms / 1000
        return event

    def begin(self, number: int) -> None:
        """Note that a failed event is under way."""
        self._under_way[number] = self._failed[number].began

    def end(
        self, number: int, answer: Answer, *, now: float, at: float, jitter: float
    ) -> Decision:
        """Decide what follows from an attempt, and change the backlog accordingly."""
        del self._under_way[number]
        known = self._failed.get(number, FailedEvent(number, 0, now, now))
        self._since = now if self._since is None else self._since
        decision = decide(
            answer.outcome,
            Failing(known.attempts + 1, known.began, self._since),
            now=now,
            retry_after=answer.retry_after,
            jitter=jitter,
        )
        if isinstance(decision, Done):
            self._since = None
        if isinstance(decision, Retry | Disable):
            delay = decision.delay if isinstance(decision, Retry) else 0.0
            attempts = known.attempts + 1
            self._failed[number] = replace(known, attempts=attempts, due=now + delay)
            self._due_at[number] = at + delay
        else:
            self._failed.pop(number, None)
        return decision

    def failed(self, number: int) -> FailedEvent | None:
        """Return an event if it is one of the failed ones."""
        return self._failed.get(number)

    def _next_failed(self) -> int | None:
        waiting = self._failed.keys() - self._under_way.keys()
        if not waiting or (self._ordered and self._under_way):
            return None
        return min(waiting) if self._ordered else min(waiting, key=lambda each: self._due_at[each])

    def _waiting_since(self) -> Iterator[float]:
        yield from self._under_way.values()
        yield from (each.began for each in self._failed.values())
        if self._read:
            yield self._read[0].row.time_ms / 1000
