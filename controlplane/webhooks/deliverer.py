"""Delivers the events of all enabled webhooks, each in a task of its own."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from random import Random

from controlplane.domain.errors import StoreError
from controlplane.domain.webhooks.webhook import Webhook
from controlplane.events.event_log import EventLog
from controlplane.metrics.webhooks import WebhookMetrics
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.follower import Follower
from controlplane.storage.engine.store import Store
from controlplane.storage.engine.worker import queue_as
from controlplane.storage.tables.webhooks.webhooks import find
from controlplane.webhooks.attempts import Attempts
from controlplane.webhooks.endpoint import Endpoint
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger, task_context
from tiltyard.runtime.tasks import TaskOwner, run_again

log = get_logger(__name__)

FIRST_PAUSE = 1.0  # Seconds until a webhook goes on after an unexpected error, doubled each time


class Deliverer:
    """Follows the webhooks, and owns the tasks that deliver their events."""

    def __init__(
        self,
        store: Store,
        event_log: EventLog,
        attempts: Attempts,
        *,
        clock: Clock,
        random: Random,
        metrics: WebhookMetrics,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._make = partial(
            Endpoint,
            store=store,
            log=event_log,
            attempts=attempts,
            clock=clock,
            random=random,
            metrics=metrics,
        )
        self._endpoints: dict[str, Endpoint] = {}
        self._disabled: set[str] = set()
        self._tasks = TaskOwner[None]()
        self._follower = Follower("webhooks", self._apply, clock)

    async def run(self) -> None:
        """Deliver until cancelled. Attempts under way are then cancelled, too."""
        self._store.changes.subscribe({Topic.WEBHOOK}, self._follower.note)
        self._follower.note(Change(Topic.WEBHOOK))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self._follower.close()
            await self._tasks.close()

    async def caught_up(self) -> None:
        """Wait until changes so far are applied, or applying them has failed once."""
        await self._follower.caught_up()

    def states(self) -> Mapping[str, int]:
        """Count the webhooks by state."""
        backlogs = [endpoint.backlog for endpoint in self._endpoints.values()]
        found = Counter(
            "failing" if each is not None and each.is_failing else "enabled" for each in backlogs
        )
        return {"enabled": 0, "failing": 0, **found, "disabled": len(self._disabled)}

    def failed_events(self) -> int:
        """Return the number of events that wait for another attempt."""
        backlogs = [endpoint.backlog for endpoint in self._endpoints.values()]
        return sum(each.failed_count for each in backlogs if each is not None)

    def lag(self) -> float:
        """Return the age in seconds of the oldest event that waits to be delivered."""
        backlogs = [endpoint.backlog for endpoint in self._endpoints.values()]
        oldest = [each.oldest for each in backlogs if each is not None]
        now = self._clock.time()
        return max((max(0.0, now - time) for time in oldest if time is not None), default=0.0)

    async def _apply(self, changed: Collection[Change]) -> None:
        """Begin, restart and end the deliveries of the webhooks that have changed."""
        ids = None
        if Change(Topic.WEBHOOK) not in changed:
            ids = {change.key[0] for change in changed}
        found = {each.id: each for each in await self._store.read(find, ids)}
        gone = (self._endpoints.keys() if ids is None else ids) - found.keys()
        for webhook_id in gone:
            self._end(webhook_id)
            self._disabled.discard(webhook_id)
        for webhook in found.values():
            self._follow(webhook)

    def _follow(self, webhook: Webhook) -> None:
        known = self._endpoints.get(webhook.id)
        if known is not None and known.webhook == webhook:
            return
        self._end(webhook.id)
        if not webhook.is_enabled:
            self._disabled.add(webhook.id)
            return
        self._disabled.discard(webhook.id)
        endpoint = self._endpoints[webhook.id] = self._make(webhook)
        work = partial(self._deliver, endpoint)
        self._tasks.start(
            run_again(work, self._clock, first=FIRST_PAUSE),
            f"webhook {webhook.id}",
            key=webhook.id,
            context=task_context(account=webhook.account, webhook=webhook.id),
        )

    def _end(self, webhook_id: str) -> None:
        self._endpoints.pop(webhook_id, None)
        task = self._tasks.get(webhook_id)
        if task is not None:
            task.cancel()

    async def _deliver(self, endpoint: Endpoint) -> None:
        queue_as(endpoint.webhook.account)
        back_off = BackOff(self._clock, self._random)
        while True:
            try:
                return await endpoint.run()
            except StoreError as error:
                log.warning("cannot deliver events yet", error=str(error))
                await back_off.wait()
