"""How far a webhook has come is recorded with each attempt."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.events.positions import Position
from controlplane.domain.webhooks.attempts import GAP, FailedEvent, Progress, Result
from controlplane.domain.webhooks.retries import Decision, Done, GiveUp, Retry
from controlplane.domain.webhooks.webhook import MAX_WEBHOOKS, DisabledCause
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.webhooks import progress, webhooks
from tests.unit.controlplane.storage.tables.webhooks.calls import (
    ACTOR,
    AT,
    DELIVERED,
    FIRST,
    GONE,
    KEY,
    LOST,
    NOW,
    RETRIED,
    WEBHOOK,
    created,
    failing,
    result,
    with_gap,
)


async def progress_of(store: Store) -> Progress:
    found = await store.look(progress.progress_of, "w")
    assert found is not None
    return found


async def test_delivery_moves_the_position(store: Store) -> None:
    await store.run(created)
    delivered = result(Done(), number=7, attempt=DELIVERED, position=Position(1, 7))
    assert await store.run(progress.record_result, delivered, NOW)
    assert await progress_of(store) == Progress(Position(1, 7))


async def test_failure_is_kept_with_its_due_time(store: Store) -> None:
    await store.run(created)
    assert await store.run(progress.record_result, RETRIED, NOW)
    event = FailedEvent(1, 1, NOW, NOW + 5)
    assert await progress_of(store) == Progress(Position(1, 1), NOW, None, {1: event})
    again = replace(event, attempts=2, due=NOW + 300)
    await store.run(progress.record_result, result(Retry(300.0), failed=again), NOW + 5)
    assert await progress_of(store) == Progress(Position(1, 1), NOW, None, {1: again})
    await store.run(progress.record_result, result(Done()), NOW + 300)
    assert await progress_of(store) == Progress(Position(1, 1))


async def gap_result(store: Store, decision: Decision) -> Result:
    """Return the result of an attempt to deliver the message about the gap as it is now."""
    gap = (await progress_of(store)).gap
    return result(decision, number=GAP, gap=gap)


@pytest.mark.parametrize(
    "decision",
    [
        Done(),
        GiveUp(),
    ],
)
async def test_gap_ends_with_its_message(store: Store, decision: Decision) -> None:
    await store.run(with_gap)
    await store.run(progress.record_result, await gap_result(store, decision), NOW)
    assert (await progress_of(store)).gap is None


@pytest.mark.parametrize(
    "decision",
    [
        Done(),
        GiveUp(),
    ],
)
async def test_gap_noted_while_its_message_is_sent_is_kept(
    store: Store, decision: Decision
) -> None:
    await store.run(with_gap)
    sent = await gap_result(store, decision)
    further = replace(LOST, first="1-7", last="1-9")
    await store.run(progress.pass_gap, WEBHOOK, further, FIRST)
    assert await store.run(progress.record_result, sent, NOW)
    gap = (await progress_of(store)).gap
    assert gap is not None
    assert gap.first == "1-1"
    assert gap.last == "1-9"


async def test_result_of_an_earlier_generation_moves_nothing(store: Store) -> None:
    await store.run(failing)
    await store.run(webhooks.rotate, KEY, b"x", until=NOW, **AT)
    before = await progress_of(store)
    late = result(Done(), position=Position(1, 9))
    assert await store.run(progress.record_result, late, NOW) is False
    assert await progress_of(store) == before
    await store.run(progress.save_position, WEBHOOK, Position(1, 9))
    assert await progress_of(store) == before


async def test_disabled_webhook_keeps_its_event_and_its_position(store: Store) -> None:
    await store.run(created)
    assert await store.run(progress.record_result, GONE, NOW) is False
    found = await store.look(webhooks.get, *KEY)
    assert found.disabled is DisabledCause.GONE
    assert found.generation == 2
    assert list((await progress_of(store)).failed) == [1]


async def test_change_lets_failed_events_be_attempted_at_once(store: Store) -> None:
    await store.run(failing)
    changed = replace(WEBHOOK, url="https://other.example/")
    await store.run(webhooks.change, changed, actor=ACTOR, now=NOW + 1)
    event = FailedEvent(1, 0, NOW + 1, NOW + 1)
    assert await progress_of(store) == Progress(Position(1, 1), None, None, {1: event})


async def test_change_of_nothing_lets_failed_events_be_attempted_at_once(store: Store) -> None:
    await store.run(failing)
    await store.run(webhooks.change, WEBHOOK, actor=ACTOR, now=NOW + 1)
    event = FailedEvent(1, 0, NOW + 1, NOW + 1)
    assert await progress_of(store) == Progress(Position(1, 1), None, None, {1: event})


async def test_change_of_nothing_without_failed_events_changes_nothing(store: Store) -> None:
    await store.run(created)
    await store.run(webhooks.change, WEBHOOK, actor=ACTOR, now=NOW + 1)
    assert (await store.look(webhooks.get, *KEY)).generation == 1


async def test_description_alone_does_not_end_a_disability(store: Store) -> None:
    await store.run(created)
    await store.run(progress.record_result, GONE, NOW)
    still = replace(WEBHOOK, description="x", disabled=DisabledCause.REQUESTED)
    await store.run(webhooks.change, still, actor=ACTOR, now=NOW)
    found = await store.look(webhooks.get, *KEY)
    assert found.description == "x"
    assert found.disabled is DisabledCause.GONE


async def test_replay_of_an_ordered_webhook_forgets_its_failed_event(store: Store) -> None:
    await store.run(failing)
    await store.run(webhooks.replay, KEY, Position(1, 5), **AT)
    assert await progress_of(store) == Progress(Position(1, 4))


async def test_replay_without_an_order_keeps_earlier_failed_events(store: Store) -> None:
    await store.run(failing)
    await store.run(webhooks.change, replace(WEBHOOK, ordered=False), actor=ACTOR, now=NOW)
    await store.run(webhooks.replay, KEY, Position(1, 5), **AT)
    assert list((await progress_of(store)).failed) == [1]
    await store.run(webhooks.replay, KEY, Position(1, 1), **AT)
    assert await progress_of(store) == Progress(Position(1, 0))


async def test_webhooks_of_an_account_are_limited(store: Store) -> None:
    for number in range(MAX_WEBHOOKS):
        webhook = replace(WEBHOOK, id=f"w{number}")
        await store.run(webhooks.create, webhook, b"", actor=ACTOR)
    with pytest.raises(ConflictError, match="the account has 20 webhooks, the maximum"):
        await store.run(webhooks.create, WEBHOOK, b"", actor=ACTOR)


@pytest.mark.parametrize(
    "key",
    [
        ("bob", "w"),
        ("alice", "x"),
    ],
)
async def test_webhook_of_another_account_is_not_found(store: Store, key: tuple[str, str]) -> None:
    await store.run(created)
    calls: tuple[tuple[Any, Any], ...] = (
        (webhooks.remove, AT),
        (webhooks.rotate, AT | {"sealed": b"x", "until": NOW}),
        (webhooks.replay, AT | {"first": Position(1, 1)}),
    )
    for call, arguments in calls:
        with pytest.raises(NotFoundError):
            await store.run(call, key, **arguments)
