"""A webhook without an order delivers each event at least once, several at a time."""

from dataclasses import replace

import pytest

from controlplane.domain.webhooks.attempts import Answer
from controlplane.domain.webhooks.retries import DELAYS, FAILING_FOR, Outcome
from controlplane.storage.tables.webhooks import webhooks
from controlplane.webhooks import backlog
from controlplane.webhooks.endpoint import PARALLEL
from tests.support.fake_clock import until_idle
from tests.support.hold import Hold
from tests.unit.controlplane.webhooks.delivering import ACTOR, LETTERS, Delivering, Sent

URL = "https://hooks.example/"
VOWELS = ("a", "e", "i", "o", "u")


def refuse(delivering: Delivering, *names: str) -> None:
    """Answer 500 to messages about these objects, and 204 to others."""

    async def choose(sent: Sent) -> None:
        delivering.sender.answers[URL] = [500 if sent.object in names else 204]

    delivering.sender.gates[URL] = choose


async def test_events_do_not_wait_for_a_failed_one(delivering: Delivering) -> None:
    refuse(delivering, "a")
    webhook = await delivering.create(URL, ordered=False)
    await delivering.cause("a", "b", "c")
    assert sorted(delivering.sender.objects(URL)) == ["a", "b", "c"]
    assert (await delivering.state(webhook)).failed == 1
    refuse(delivering)
    await delivering.clock.advance(DELAYS[0])
    assert delivering.sender.objects(URL)[3:] == ["a"]
    assert (await delivering.state(webhook)).failed == 0


async def test_some_attempts_are_made_at_a_time(delivering: Delivering) -> None:
    gate = delivering.sender.gates[URL] = Hold()
    await delivering.create(URL, ordered=False)
    await delivering.cause(*LETTERS)
    assert delivering.sender.under_way == PARALLEL
    gate.set()
    await until_idle()
    assert sorted(delivering.sender.objects(URL)) == list(LETTERS)
    assert delivering.sender.most_under_way == PARALLEL


async def test_crash_loses_nothing_that_is_under_way(delivering: Delivering) -> None:
    first = Hold()

    async def hold_the_first(sent: Sent) -> None:
        if sent.object == "a":
            await first()

    delivering.sender.gates[URL] = hold_the_first
    webhook = await delivering.create(URL, ordered=False)
    await delivering.cause(*LETTERS)
    assert sorted(delivering.sender.objects(URL)) == list(LETTERS)
    before = (await delivering.state(webhook)).position
    await delivering.stop()
    delivering.sender.gates.clear()
    await delivering.start()
    assert delivering.sender.objects(URL)[8:].count("a") == 1
    assert (await delivering.state(webhook)).position.number == before.number + 8


async def test_failed_event_survives_a_restart(delivering: Delivering) -> None:
    refuse(delivering, "a")
    await delivering.create(URL, ordered=False)
    await delivering.cause("a", "b")
    await delivering.stop()
    await delivering.start()
    refuse(delivering)
    await delivering.clock.advance(DELAYS[0])
    assert sorted(delivering.sender.objects(URL)) == ["a", "a", "b"]


async def test_event_that_fails_for_five_days_is_given_up_and_named(
    delivering: Delivering,
) -> None:
    refuse(delivering, "a")
    webhook = await delivering.create(URL, ordered=False)
    await delivering.cause("a")
    failed = delivering.sender.sent[0].data["id"]
    for _ in range(10):
        await delivering.clock.advance(FAILING_FOR / 10)
        await delivering.cause("other")  # its endpoint is not dead
    await delivering.clock.advance(1.0)
    state = await delivering.state(webhook)
    assert state.webhook.is_enabled
    assert state.failed == 0
    gap = {"from": failed, "to": failed, "cause": "failed"}
    assert await delivering.events("webhook.gap") == [gap]
    [notified] = [sent for sent in delivering.sender.sent if sent.kind == "webhook.gap"]
    assert notified.data["data"] == gap


async def test_throttled_endpoint_gets_one_attempt_at_a_time(delivering: Delivering) -> None:
    delivering.sender.answers[URL] = [Answer(Outcome.THROTTLED, 0.1, 429, retry_after=60.0)] * 4
    await delivering.create(URL, ordered=False)
    await delivering.cause(*LETTERS)
    first = len(delivering.sender.sent)
    assert first <= PARALLEL
    await delivering.clock.advance(59.0)
    assert len(delivering.sender.sent) == first
    await delivering.clock.advance(1.0)
    assert sorted(set(delivering.sender.objects(URL))) == list(LETTERS)


async def test_webhook_with_many_failed_events_reads_no_further_ones(
    delivering: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "MOST_FAILED", 3)
    delivering.sender.always[URL] = 500
    webhook = await delivering.create(URL, ordered=False)
    for name in LETTERS:
        await delivering.cause(name)
    assert (await delivering.state(webhook)).failed == 3
    delivering.sender.always[URL] = 204
    await delivering.clock.advance(DELAYS[0])
    assert set(delivering.sender.objects(URL)) == set(LETTERS)


async def test_failed_events_are_delivered_first_once_the_webhook_is_ordered(
    delivering: Delivering,
) -> None:
    refuse(delivering, "a", "b")
    webhook = await delivering.create(URL, ordered=False)
    await delivering.cause("a", "b", "c")
    delivering.sender.gates.clear()
    now = delivering.clock.time()
    changed = replace(webhook, ordered=True)
    await delivering.run(webhooks.change, changed, actor=ACTOR, now=now)
    await delivering.cause("d")
    assert delivering.sender.objects(URL)[3:] == ["a", "b", "d"]


@pytest.mark.parametrize("ordered", [False, True])
async def test_failed_events_that_a_new_filter_excludes_are_not_delivered(
    delivering: Delivering, *, ordered: bool
) -> None:
    delivering.sender.always[URL] = 500
    webhook = await delivering.create(URL, ordered=ordered)
    await delivering.cause("a", "b")
    delivering.sender.always[URL] = 204
    sent = len(delivering.sender.sent)
    now = delivering.clock.time()
    changed = replace(webhook, kinds=("session.*",))
    await delivering.run(webhooks.change, changed, actor=ACTOR, now=now)
    await delivering.clock.advance(FAILING_FOR)
    assert delivering.sender.sent[sent:] == []
    assert (await delivering.state(webhook)).failed == 0
    assert await delivering.events("webhook.gap") == []


async def test_failed_events_that_a_new_filter_includes_are_delivered(
    delivering: Delivering,
) -> None:
    delivering.sender.always[URL] = 500
    webhook = await delivering.create(URL, ordered=False)
    await delivering.cause("a", "b")
    delivering.sender.always[URL] = 204
    sent = len(delivering.sender.sent)
    now = delivering.clock.time()
    kinds = tuple({message.kind for message in delivering.sender.sent})
    changed = replace(webhook, kinds=kinds)
    await delivering.run(webhooks.change, changed, actor=ACTOR, now=now)
    await delivering.clock.advance(DELAYS[0])
    assert delivering.sender.objects(URL)[sent:] == ["a", "b"]


async def test_every_event_is_delivered_whatever_fails_in_between(
    delivering: Delivering,
) -> None:
    refuse(delivering, *VOWELS)
    await delivering.create(URL, ordered=False)
    letters = [chr(ord("a") + number) for number in range(26)]
    for name in letters:
        await delivering.cause(name)
    await delivering.stop()
    refuse(delivering)
    await delivering.start()
    await delivering.clock.advance(DELAYS[0])
    delivered = set(delivering.sender.objects(URL)[26:]) | (set(letters) - set(VOWELS))
    assert delivered == set(letters)
