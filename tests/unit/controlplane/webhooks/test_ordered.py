"""An ordered webhook delivers each event at least once, and in order."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from controlplane.domain.webhooks.attempts import Answer
from controlplane.domain.webhooks.retries import DELAYS, FAILING_FOR, HOUR, Outcome
from controlplane.domain.webhooks.webhook import DisabledCause, Webhook
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.webhooks import webhooks
from tests.support.controlplane.transactions import run_sql
from tests.support.fake_clock import until_idle
from tests.support.hold import Hold
from tests.unit.controlplane.webhooks.delivering import ACTOR, LETTERS, Delivering

URL = "https://hooks.example/"
OTHER = "https://other.example/"


async def test_event_waits_for_the_one_before_it(delivering: Delivering) -> None:
    gate = delivering.sender.gates[URL] = Hold()
    await delivering.create(URL)
    await delivering.cause("a", "b", "c")
    assert delivering.sender.objects(URL) == ["a"]
    gate.set()
    await until_idle()
    assert delivering.sender.objects(URL) == ["a", "b", "c"]
    assert delivering.sender.most_under_way == 1


async def test_failed_event_is_retried_on_schedule_with_one_id(delivering: Delivering) -> None:
    delivering.sender.answers[URL] = [500] * len(DELAYS)
    await delivering.create(URL)
    await delivering.cause("a", "b")
    await delivering.clock.advance(sum(DELAYS) + 1)
    times = delivering.sender.times(URL)
    waits = [later - before for before, later in pairwise(times)]
    assert waits == pytest.approx([*DELAYS, 0.0])
    assert delivering.sender.objects(URL) == ["a"] * (len(DELAYS) + 1) + ["b"]
    assert len({sent.id for sent in delivering.sender.sent}) == 2


@pytest.mark.parametrize("status", [301, 302, 404, 429, 500, 503])
async def test_answer_without_success_is_a_failure(delivering: Delivering, status: int) -> None:
    delivering.sender.answers[URL] = [status]
    webhook = await delivering.create(URL)
    await delivering.cause("a", "b")
    assert delivering.sender.objects(URL) == ["a"]
    assert (await delivering.state(webhook)).failed == 1
    await delivering.clock.advance(DELAYS[0])
    assert delivering.sender.objects(URL) == ["a", "a", "b"]
    assert (await delivering.state(webhook)).failed == 0


async def test_retry_after_is_honoured(delivering: Delivering) -> None:
    throttled = Answer(Outcome.THROTTLED, 0.1, 429, retry_after=90.0)
    delivering.sender.answers[URL] = [throttled]
    await delivering.create(URL)
    await delivering.cause("a")
    await delivering.clock.advance(89.0)
    assert delivering.sender.times(URL) == [0.0]
    await delivering.clock.advance(1.0)
    assert delivering.sender.times(URL) == [0.0, 90.0]


async def test_410_disables_and_the_event_is_kept(delivering: Delivering) -> None:
    delivering.sender.answers[URL] = [410]
    webhook = await delivering.create(URL)
    await delivering.cause("a", "b")
    await delivering.clock.advance(HOUR)
    state = await delivering.state(webhook)
    assert state.webhook.disabled is DisabledCause.GONE
    assert await delivering.events("webhook.disabled") == [{"cause": "gone", "status": 410}]
    assert delivering.sender.objects(URL) == ["a"]
    await enable(delivering, webhook)
    assert delivering.sender.objects(URL) == ["a", "a", "b"]


async def enable(delivering: Delivering, webhook: Webhook) -> None:
    now = delivering.clock.time()
    await delivering.run(webhooks.change, webhook, actor=ACTOR, now=now)


async def test_endpoint_that_fails_for_five_days_is_disabled(delivering: Delivering) -> None:
    delivering.sender.always[URL] = Outcome.UNREACHABLE
    webhook = await delivering.create(URL)
    await delivering.cause("a")
    await delivering.clock.advance(FAILING_FOR - 1)
    assert (await delivering.state(webhook)).webhook.is_enabled
    await delivering.clock.advance(1)
    assert (await delivering.state(webhook)).webhook.disabled is DisabledCause.FAILING
    assert await delivering.events("webhook.disabled") == [{"cause": "failing", "status": None}]
    attempts = len(delivering.sender.sent)
    await delivering.clock.advance(FAILING_FOR)
    assert len(delivering.sender.sent) == attempts
    assert delivering.deliverer.states() == {"enabled": 0, "failing": 0, "disabled": 1}


async def test_delivery_ends_the_time_of_failure(delivering: Delivering) -> None:
    webhook = await delivering.create(URL)
    for name in ("a", "b", "c"):
        delivering.sender.answers[URL] = [500] * 9
        await delivering.cause(name)
        assert (await delivering.state(webhook)).failing_since is not None
        await delivering.clock.advance(sum(DELAYS))
        assert (await delivering.state(webhook)).failing_since is None
    assert (await delivering.state(webhook)).webhook.is_enabled


async def test_dead_endpoint_delays_no_other_one(delivering: Delivering) -> None:
    dead = Hold()
    delivering.sender.gates[URL] = dead
    delivering.sender.always["https://failing.example/"] = Outcome.UNREACHABLE
    for url in (URL, "https://failing.example/", OTHER):
        await delivering.create(url)
    await delivering.cause(*LETTERS)
    assert delivering.sender.objects(OTHER) == list(LETTERS)
    assert delivering.sender.objects(URL) == ["a"]


async def test_crash_between_answer_and_record_delivers_again_in_order(
    delivering: Delivering,
) -> None:
    reached = asyncio.Event()
    webhook = await delivering.create(URL)
    await delivering.cause("a")

    async def crash_after_answer(_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    delivering.sender.gates[URL] = crash_after_answer
    await delivering.cause("b", "c")
    assert reached.is_set()
    await delivering.stop()
    delivering.sender.gates.clear()
    await delivering.start()
    assert delivering.sender.objects(URL) == ["a", "b", "b", "c"]
    assert len(await delivering.attempts(webhook)) == 3


async def test_retry_survives_a_restart(delivering: Delivering) -> None:
    delivering.sender.answers[URL] = [500, 500]
    await delivering.create(URL)
    await delivering.cause("a", "b")
    await delivering.clock.advance(DELAYS[0])
    assert delivering.sender.times(URL) == [0.0, DELAYS[0]]
    await delivering.stop()
    await delivering.start()
    await delivering.clock.advance(DELAYS[1] - 1)
    assert len(delivering.sender.sent) == 2
    await delivering.clock.advance(1)
    assert delivering.sender.objects(URL) == ["a", "a", "a", "b"]


async def test_failing_database_delivers_again_what_was_not_recorded(
    delivering: Delivering, store: Store
) -> None:
    gate = delivering.sender.gates[URL] = Hold()
    await delivering.create(URL)
    await delivering.cause("a", "b")
    await store.run(run_sql, "ALTER TABLE webhook_attempt RENAME TO gone")
    gate.set()
    await delivering.clock.advance(0.0)
    assert set(delivering.sender.objects(URL)) == {"a"}
    await store.run(run_sql, "ALTER TABLE gone RENAME TO webhook_attempt")
    await delivering.clock.advance(60.0)
    assert delivering.sender.objects(URL)[-2:] == ["a", "b"]


async def test_change_applies_to_the_event_that_fails(delivering: Delivering) -> None:
    delivering.sender.always[URL] = 500
    webhook = await delivering.create(URL)
    await delivering.cause("a", "b")
    await enable(delivering, replace(webhook, url=OTHER))
    assert delivering.sender.objects(URL) == ["a"]
    assert delivering.sender.objects(OTHER) == ["a", "b"]


@pytest.mark.parametrize("status", [429, 500])
async def test_change_to_the_same_values_attempts_the_event_that_fails(
    delivering: Delivering, status: int
) -> None:
    webhook = await delivering.create(URL)
    delivering.sender.answers[URL] = [status, status]
    await delivering.cause("a")
    await delivering.clock.advance(10.0)
    now = delivering.clock.time()
    await delivering.run(webhooks.change, webhook, actor=ACTOR, now=now)
    assert delivering.sender.objects(URL) == ["a", "a", "a"]
    assert await delivering.events("webhook.changed") == []


async def test_clock_that_is_set_back_delays_no_retry(delivering: Delivering) -> None:
    delivering.sender.answers[URL] = [500]
    await delivering.create(URL)
    await delivering.cause("a")
    delivering.clock.jump(-HOUR)
    await delivering.clock.advance(DELAYS[0])
    assert delivering.sender.objects(URL) == ["a", "a"]


async def test_removal_ends_the_attempt_that_is_under_way(delivering: Delivering) -> None:
    delivering.sender.gates[URL] = Hold()
    webhook = await delivering.create(URL)
    await delivering.cause("a")
    assert delivering.sender.under_way == 1
    key = (webhook.account, webhook.id)
    await delivering.run(webhooks.remove, key, actor=ACTOR, now=delivering.clock.time())
    assert delivering.sender.under_way == 0
    assert delivering.deliverer.states() == {"enabled": 0, "failing": 0, "disabled": 0}


async def test_shutdown_waits_for_no_endpoint(delivering: Delivering) -> None:
    delivering.sender.gates[URL] = Hold()
    await delivering.create(URL)
    await delivering.cause("a")
    async with asyncio.timeout(10):
        await delivering.stop()
    assert delivering.sender.under_way == 0


async def test_webhook_without_its_key_fails_until_its_secret_is_rotated(
    delivering: Delivering,
) -> None:
    webhook = await delivering.create(URL)
    _, sealed = await delivering.secrets.new("alice", "another")
    key = (webhook.account, webhook.id)
    now = delivering.clock.time()
    rotate = webhooks.rotate
    for _ in range(2):  # the former one is unusable, too
        await delivering.run(rotate, key, sealed, until=now + 60, actor=ACTOR, now=now)
    await delivering.cause("a")
    [attempt] = await delivering.attempts(webhook)
    assert attempt.answer.outcome is Outcome.UNSIGNED
    assert delivering.sender.sent == []
    _, sealed = await delivering.secrets.new(webhook.account, webhook.id)
    await delivering.run(rotate, key, sealed, until=now + 60, actor=ACTOR, now=now)
    assert delivering.sender.objects(URL) == ["a"]


async def test_lag_is_the_age_of_the_oldest_event(delivering: Delivering) -> None:
    delivering.sender.answers[URL] = [500, 500]
    await delivering.create(URL)
    assert delivering.deliverer.lag() == 0.0
    await delivering.cause("a")
    await delivering.clock.advance(200.0)
    assert delivering.deliverer.lag() == pytest.approx(200.0)
    assert delivering.deliverer.failed_events() == 1
    assert delivering.deliverer.states() == {"enabled": 0, "failing": 1, "disabled": 0}
    await delivering.clock.advance(DELAYS[1])
    assert delivering.deliverer.lag() == 0.0
    assert delivering.deliverer.failed_events() == 0
