"""Deliveries from a real database to scripted endpoints, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ParamSpec

from controlplane.domain.access.audit import ITSELF, Actor
from controlplane.domain.events.accounts import TokenRevoked
from controlplane.domain.webhooks.attempts import Answer, Attempt
from controlplane.domain.webhooks.retries import Outcome, outcome_of
from controlplane.domain.webhooks.webhook import Webhook
from controlplane.events.event_log import EventLog
from controlplane.metrics.webhooks import WebhookMetrics
from controlplane.registries.vault import Vault
from controlplane.storage.engine.database import Database, Transaction
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.webhooks import webhooks
from controlplane.storage.tables.webhooks.attempts import find_attempts
from controlplane.storage.tables.webhooks.webhooks import WebhookState
from controlplane.webhooks.attempts import Attempts
from controlplane.webhooks.deliverer import Deliverer
from controlplane.webhooks.secrets import WebhookSecrets
from controlplane.webhooks.sender import Sender
from tests.support.fake_clock import FakeClock, until_idle

_P = ParamSpec("_P")

ACTOR = Actor("ab")
NO_JITTER = 0.0
LETTERS = ("a", "b", "c", "d", "e", "f", "g", "h")


@dataclass(frozen=True)
class Sent:
    """A message as an endpoint gets it; `at` in seconds since the begin."""

    at: float
    url: str
    id: str
    kind: str
    object: str
    data: Any


class ScriptedSender(Sender):
    """Endpoints by URL; each answers with the next of its statuses, then with 204.

    A status may be an outcome without an answer, or a whole answer. `gates` hold the answers of a
    URL back.
    """

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._begin = clock.monotonic()
        self._time = clock
        self.sent: list[Sent] = []
        self.under_way = 0
        self.most_under_way = 0
        self.answers: dict[str, list[int | Outcome | Answer]] = {}
        self.always: dict[str, int | Outcome | Answer] = {}
        self.gates: dict[str, Callable[[Sent], Awaitable[object]]] = {}

    async def send(
        self, account: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        message = json.loads(body)
        data = message["data"]
        sent = Sent(
            self._time.monotonic() - self._begin,
            url,
            headers["webhook-id"],
            message["type"],
            str(data.get("object", "")),
            data,
        )
        self.sent.append(sent)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if url in self.gates:
                await self.gates[url](sent)
        finally:
            self.under_way -= 1
        return self._answer(url)

    def _answer(self, url: str) -> Answer:
        left = self.answers.get(url)
        status = left.pop(0) if left else self.always.get(url, 204)
        if isinstance(status, Answer):
            return status
        if isinstance(status, Outcome):
            return Answer(status, 0.1, error="scripted")
        return Answer(outcome_of(status), 0.1, status, text=f"answer {status}")

    def objects(self, url: str) -> list[str]:
        return [sent.object for sent in self.sent if sent.url == url]

    def times(self, url: str) -> list[float]:
        return [sent.at for sent in self.sent if sent.url == url]


class Instant(Random):
    """No jitter."""

    def random(self) -> float:
        return NO_JITTER


class Delivering:
    """A deliverer of a store that already has the account alice."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.clock = FakeClock()
        self.sender = ScriptedSender(self.clock)
        self.vault = Vault(folder / "registry.key")
        self.metrics = WebhookMetrics()
        self.secrets = WebhookSecrets(self.vault)
        self.event_log = EventLog(store, self.clock)
        self._made = 0
        self.deliverer = self._make()
        self._running: asyncio.Task[None] | None = None

    def _make(self) -> Deliverer:
        attempts = Attempts(
            self.sender, self.secrets, clock=self.clock, metrics=self.metrics, spacing=0.0
        )
        return Deliverer(
            self.store,
            self.event_log,
            attempts,
            clock=self.clock,
            random=Instant(),
            metrics=self.metrics,
        )

    async def start(self) -> None:
        # A process that starts has no events in memory.
        await self.event_log.close()
        self.event_log = EventLog(self.store, self.clock)
        self.deliverer = self._make()
        self._running = asyncio.create_task(self.deliverer.run())
        await until_idle()

    async def stop(self) -> None:
        """Stop as a crash does: nothing that is under way is recorded."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def close(self) -> None:
        await self.stop()
        await self.event_log.close()
        self.sender.close()
        await self.secrets.close()

    async def create(self, url: str, *, account: str = "alice", **fields: Any) -> Webhook:
        """Create a webhook of token events."""
        self._made += 1
        values: dict[str, Any] = {"kinds": ("token.*",), **fields}
        webhook = Webhook(f"w{self._made}", account, url, self.clock.time(), **values)
        _, sealed = await self.secrets.new(account, webhook.id)
        await self.run(webhooks.create, webhook, sealed, actor=ACTOR)
        return webhook

    async def cause(self, *names: str, account: str = "alice") -> None:
        """Append an event about each of these, in one transaction."""

        def transaction(db: Database) -> None:
            for name in names:
                db.append(TokenRevoked(account, name, ITSELF, now, revoked_with=name))

        now = self.clock.time()
        await self.run(transaction)

    async def run(
        self, transaction: Transaction[_P, object], *args: _P.args, **kwargs: _P.kwargs
    ) -> None:
        """Run a transaction, and wait until the deliverer has done what it causes."""
        await self.store.run(transaction, *args, **kwargs)
        await until_idle()

    async def state(self, webhook: Webhook) -> WebhookState:
        [found] = await self.store.look(webhooks.states_of, webhook.account, webhook.id)
        return found

    async def attempts(self, webhook: Webhook) -> list[Attempt]:
        """Read the recorded attempts, the oldest first."""
        found = await self.store.look(
            find_attempts, webhook.id, before=None, limit=5000, failed=False
        )
        return list(reversed(found))

    async def events(self, kind: str) -> list[Any]:
        """Read the data of all events of a kind."""

        def look(db: Database) -> list[Any]:
            sql = "SELECT data FROM event WHERE kind=:kind ORDER BY sequence"
            return [json.loads(data) for (data,) in db.execute(sql, {"kind": kind})]

        return await self.store.look(look)
