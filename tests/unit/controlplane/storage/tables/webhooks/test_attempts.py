"""The newest attempts of a webhook are kept, and its failures of a day."""

from dataclasses import replace

import pytest

from controlplane.domain.webhooks.attempts import Attempt
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import accounts
from controlplane.storage.tables.webhooks import attempts, progress, webhooks
from controlplane.storage.tables.webhooks.attempts import (
    FAILURE_SECONDS,
    find_attempts,
    record_attempt,
    remove_old_failures,
    remove_orphans,
)
from tests.unit.controlplane.storage.tables.webhooks.calls import (
    AT,
    DELIVERED,
    FAILED,
    KEY,
    NOW,
    RETRIED,
    created,
)


@pytest.fixture(autouse=True)
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "KEPT", 10)
    monkeypatch.setattr(attempts, "FAILURES_KEPT", 30)
    monkeypatch.setattr(attempts, "_STEP", 1)


async def record(store: Store, attempt: Attempt, times: int, later: float = 0.0) -> None:
    def transaction(db: Database) -> None:
        for _ in range(times):
            record_attempt(db, "w", replace(attempt, time=NOW + later))

    await store.run(transaction)


async def numbers(store: Store, *, failed: bool = False) -> list[int]:
    found = await store.look(find_attempts, "w", before=None, limit=100, failed=failed)
    return [each.number for each in found]


async def test_newest_attempts_are_kept(store: Store) -> None:
    await store.run(created)
    await record(store, DELIVERED, 50)
    assert await numbers(store) == list(range(50, 40, -1))


async def test_failures_of_a_day_are_kept_beyond_them(store: Store) -> None:
    await store.run(created)
    await record(store, FAILED, 5)
    await record(store, DELIVERED, 20, later=FAILURE_SECONDS)
    assert await numbers(store) == [*range(25, 15, -1), 5, 4, 3, 2, 1]
    await record(store, DELIVERED, 1, later=FAILURE_SECONDS + 1)
    assert await numbers(store) == list(range(26, 16, -1))


async def test_number_of_failures_is_bounded(store: Store) -> None:
    await store.run(created)
    await record(store, FAILED, 60)
    assert await numbers(store) == list(range(60, 30, -1))


async def test_failures_of_a_quiet_webhook_are_removed_after_a_day(store: Store) -> None:
    await store.run(created)
    await record(store, FAILED, 20)
    await store.run_in_portions(remove_old_failures, NOW)
    assert await numbers(store) == list(range(20, 0, -1))
    await store.run_in_portions(remove_old_failures, NOW + 1)
    assert await numbers(store) == list(range(20, 10, -1))


async def test_pages_of_attempts_and_of_failures(store: Store) -> None:
    await store.run(created)
    for attempt in (FAILED, DELIVERED, FAILED, DELIVERED):
        await record(store, attempt, 1)
    assert await numbers(store) == [4, 3, 2, 1]
    assert await numbers(store, failed=True) == [3, 1]
    page = await store.look(find_attempts, "w", before=4, limit=2, failed=False)
    assert [each.number for each in page] == [3, 2]
    assert page[0].answer == FAILED.answer


async def count(store: Store) -> dict[str, int]:
    def look(db: Database) -> dict[str, int]:
        tables = ("webhook", "webhook_progress", "webhook_retry", "webhook_attempt")
        return {
            table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables
        }

    return await store.look(look)


async def test_rows_of_a_removed_webhook_are_removed_in_portions(store: Store) -> None:
    await store.run(created)
    await record(store, FAILED, 10)
    await store.run(progress.record_result, RETRIED, NOW)
    await store.run(webhooks.remove, KEY, **AT)
    assert await store.run(progress.record_result, RETRIED, NOW) is False
    assert await store.run(record_attempt, "w", FAILED) == 0
    await store.run_in_portions(remove_orphans, 0.0)
    assert set((await count(store)).values()) == {0}


async def test_webhooks_go_with_their_account(store: Store) -> None:
    await store.run(created)
    await record(store, FAILED, 10)
    await store.run(accounts.remove, "alice", **AT)
    await store.run_in_portions(accounts.remove_portion, "alice")
    assert (await count(store))["webhook"] == 0
    await store.run_in_portions(remove_orphans, 0.0)
    assert set((await count(store)).values()) == {0}


async def test_rows_of_other_webhooks_stay(store: Store) -> None:
    await store.run(created)
    await record(store, FAILED, 5)
    await store.run_in_portions(remove_orphans, 0.0)
    assert len(await numbers(store)) == 5
