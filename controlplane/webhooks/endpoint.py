"""The deliveries of one webhook."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from controlplane.domain.events.positions import EventsGoneError, Position
from controlplane.domain.events.stored import StoredEvent
from controlplane.domain.events.webhooks import WebhookGap
from controlplane.domain.webhooks.attempts import GAP, Attempt, Gap, Result
from controlplane.domain.webhooks.messages import Message, gap_message, message_of
from controlplane.domain.webhooks.retries import Disable, GiveUp, Outcome, Retry
from controlplane.domain.webhooks.webhook import Webhook
from controlplane.events.event_log import EventLog
from controlplane.metrics.webhooks import WebhookMetrics
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounting.event_reading import event_at
from controlplane.storage.tables.webhooks import progress as rows
from controlplane.storage.tables.webhooks.webhooks import SealedSecrets, secrets_of
from controlplane.webhooks.attempts import Attempts
from controlplane.webhooks.backlog import Backlog
from tiltyard.runtime.clock import Clock

PARALLEL = 4  # Attempts of a webhook without an order
BATCH = 32  # Events in memory of a webhook
SAVED_EVERY = 600.0  # Seconds after which a position is saved that no delivery has saved

FAILED = "failed"
RETENTION = "retention"
RESTORED = "restored"
"""Causes of gaps."""


class _ChangedError(Exception):
    """The webhook was changed, disabled or removed: another task delivers it, or none."""


class _LoadAgainError(Exception):
    """The progress of the webhook was changed in the database."""


class Endpoint:
    """Delivers the events of a webhook as it is in one generation."""

    def __init__(
        self,
        webhook: Webhook,
        *,
        store: Store,
        log: EventLog,
        attempts: Attempts,
        clock: Clock,
        random: Random,
        metrics: WebhookMetrics,
    ) -> None:
        self.webhook = webhook
        self.backlog: Backlog | None = None  # None until it is loaded
        self._store = store
        self._log = log
        self._attempts = attempts
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._gap: Gap | None = None
        self._parallel = 1 if webhook.ordered else PARALLEL
        self._paused_until = float("-inf")
        self._saved_at = clock.monotonic()

    async def run(self) -> None:
        """Deliver until the webhook is changed.

        Raises:
            StoreError: The database failed. What was not recorded is delivered once more.
        """
        while True:
            try:
                return await self._run_loaded()
            except _LoadAgainError:
                continue
            except _ChangedError:
                return None

    async def _run_loaded(self) -> None:
        newest = await self._log.newest()
        progress = await self._store.look(rows.progress_of, self.webhook.id)
        sealed = await self._store.look(secrets_of, self.webhook.id)
        if progress is None or sealed is None:
            return
        position = progress.position
        if position.epoch != newest.epoch:
            # Position and log are of the same copy of the database: nothing in it is skipped.
            resume = Position(newest.epoch, min(position.number, newest.number))
            lost = Position(position.epoch, position.number + 1)
            await self._pass_gap(Gap(str(lost), None, RESTORED, self._clock.time()), resume)
        now = self._clock.time()
        at = self._clock.monotonic()
        self._gap = progress.gap
        backlog = Backlog(progress, ordered=self.webhook.ordered, now=now, at=at)
        self.backlog = backlog
        await self._deliver_all(backlog, sealed)

    async def _deliver_all(self, backlog: Backlog, sealed: SealedSecrets) -> None:
        deliveries: set[asyncio.Task[None]] = set()
        reading: asyncio.Task[None] | None = None
        try:
            while True:
                self._begin_due(backlog, sealed, deliveries)
                if reading is None and backlog.wants_more:
                    reading = self._task(self._read_more(backlog), "reading")
                ended = await self._wait_for_any(backlog, deliveries, reading)
                for task in ended:
                    deliveries.discard(task)
                    if task is reading:
                        reading = None
                    task.result()
        finally:
            left = deliveries | ({reading} if reading else set())
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _begin_due(
        self, backlog: Backlog, sealed: SealedSecrets, deliveries: set[asyncio.Task[None]]
    ) -> None:
        at = self._clock.monotonic()
        while len(deliveries) < self._parallel and self._paused_until <= at:
            number = backlog.next_failed(at)
            if number is not None:
                backlog.begin(number)
                work = self._deliver_failed(backlog, sealed, number)
            else:
                event = backlog.next_event()
                if event is None:
                    return
                work = self._deliver_event(backlog, sealed, event)
            deliveries.add(self._task(work, "delivery"))

    async def _wait_for_any(
        self,
        backlog: Backlog,
        deliveries: set[asyncio.Task[None]],
        reading: asyncio.Task[None] | None,
    ) -> set[asyncio.Task[None]]:
        """Wait until a task has ended, or the next attempt is due; return what has ended."""
        at = self._clock.monotonic()
        seconds = backlog.seconds_left(at)
        if self._paused_until > at:
            seconds = max(seconds or 0.0, self._paused_until - at)
        waited = deliveries | ({reading} if reading else set())
        timer: asyncio.Task[None] | None = None
        if seconds is not None and len(deliveries) < self._parallel:
            timer = self._task(self._clock.sleep(seconds), "timer")
        try:
            all_ = waited | ({timer} if timer else set())
            done, _ = await asyncio.wait(all_, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
        return done & waited

    async def _read_more(self, backlog: Backlog) -> None:
        """Read events of the log, or wait until there are further ones."""
        wanted = self.webhook.filter
        try:
            batch = await self._log.read(wanted, backlog.read_to, BATCH)
        except EventsGoneError as error:
            if error.resume.epoch != backlog.read_to.epoch:
                raise _LoadAgainError from None
            first = Position(backlog.read_to.epoch, backlog.read_to.number + 1)
            gap = Gap(str(first), str(error.resume), RETENTION, self._clock.time())
            await self._pass_gap(gap, error.resume)
        events = [event for event in batch.events if not self._is_own_gap(event)]
        backlog.add(events, batch.after)
        if events:
            return
        await self._save_position(backlog)
        account = self.webhook.account
        backlog.add((), await self._log.changed(account, batch.after, SAVED_EVERY))

    def _is_own_gap(self, event: StoredEvent) -> bool:
        """Return whether an event is about a gap that the endpoint is notified of anyway."""
        return event.kind == WebhookGap.kind and event.row.object == self.webhook.id

    async def _save_position(self, backlog: Backlog) -> None:
        """Save the position at times, so that a quiet webhook is not behind the retention."""
        at = self._clock.monotonic()
        if at - self._saved_at < SAVED_EVERY:
            return
        self._saved_at = at
        await self._store.run(rows.save_position, self.webhook, backlog.position)

    async def _pass_gap(self, gap: Gap, resume: Position) -> None:
        self._metrics.gaps.inc()
        if await self._store.run(rows.pass_gap, self.webhook, gap, resume):
            raise _LoadAgainError
        raise _ChangedError

    async def _deliver_event(
        self, backlog: Backlog, sealed: SealedSecrets, event: StoredEvent
    ) -> None:
        await self._deliver(
            backlog, sealed, event.position.number, message_of(self.webhook.id, event)
        )

    async def _deliver_failed(self, backlog: Backlog, sealed: SealedSecrets, number: int) -> None:
        if number == GAP:
            assert self._gap is not None, "it is in the backlog"
            message = gap_message(self.webhook, self._gap, backlog.read_to.epoch)
        else:
            message = await self._message_at(backlog, number)
        await self._deliver(backlog, sealed, number, message)

    async def _deliver(
        self, backlog: Backlog, sealed: SealedSecrets, number: int, message: Message
    ) -> None:
        gap = self._gap if number == GAP else None
        shown = number if gap is None else gap.number
        event = str(Position(backlog.read_to.epoch, shown))
        attempt = await self._attempts.make(self.webhook, sealed, message, event)
        now = self._clock.time()
        decision = backlog.end(
            number,
            attempt.answer,
            now=now,
            at=self._clock.monotonic(),
            jitter=self._random.random(),
        )
        result = Result(
            self.webhook.id,
            self.webhook.generation,
            number,
            attempt,
            decision,
            backlog.position,
            backlog.failed(number),
            gap,
        )
        if isinstance(decision, Disable):
            self._metrics.disabled(decision.cause)
        if not await self._store.run(rows.record_result, result, now):
            raise _ChangedError
        if isinstance(decision, GiveUp):
            self._metrics.gaps.inc()
            raise _LoadAgainError
        self._set_pace(attempt, decision.delay if isinstance(decision, Retry) else None)

    def _set_pace(self, attempt: Attempt, delay: float | None) -> None:
        """Make one attempt at a time after an answer that asks for fewer, until a delivery."""
        if attempt.answer.outcome is Outcome.THROTTLED and delay is not None:
            self._parallel = 1
            self._paused_until = self._clock.monotonic() + delay
        elif delay is None:
            self._parallel = 1 if self.webhook.ordered else PARALLEL

    async def _message_at(self, backlog: Backlog, number: int) -> Message:
        """Read a failed event; if it was removed, record a gap in its place."""
        position = Position(backlog.read_to.epoch, number)
        event = await self._store.look(event_at, position)
        if event is not None:
            return message_of(self.webhook.id, event)
        event_id = str(position)
        gap = Gap(event_id, event_id, RETENTION, self._clock.time())
        self._metrics.gaps.inc()
        if await self._store.run(rows.drop_event, self.webhook, number, gap):
            raise _LoadAgainError
        raise _ChangedError

    def _task(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=f"webhook {what} {self.webhook.id}")
