"""The times whose sessions the database may have lost."""

import pytest

from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions import lost_times
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows

NOW = 10_000_000.0
KEPT = 1000.0


async def times(store: Store) -> list[tuple[int, int | None]]:
    return await rows(store, "SELECT begin_ms, end_ms FROM lost_time ORDER BY begin_ms")


async def last_entry(store: Store, seconds: int) -> None:
    await rows(store, f"UPDATE agent SET last_report_ms={seconds * 1000} WHERE name='h'")
    await rows(store, "DELETE FROM event")


async def serve(store: Store, now: float) -> None:
    await store.run(lost_times.begin)
    await store.run(lost_times.end, now, KEPT)


async def test_new_database_has_lost_all_sessions_before_it(store: Store) -> None:
    assert await times(store) == [(0, None)]
    await serve(store, NOW)
    assert await times(store) == [(0, NOW * 1000)]


async def test_everything_since_the_last_entry_may_be_lost_at_a_start(store: Store) -> None:
    await serve(store, NOW)
    await last_entry(store, int(NOW) + 700)
    await serve(store, NOW + 800)
    assert await times(store) == [
        (0, NOW * 1000),
        ((NOW + 700) * 1000, (NOW + 800) * 1000),
    ]


async def test_frequent_starts_extend_one_lost_time(store: Store) -> None:
    await serve(store, NOW)
    for second in range(1, 50):
        await rows(
            store,
            "INSERT INTO event(time_ms, kind, version, account, actor, object, data)"
            f" VALUES ({int(NOW + second) * 1000}, 'k', 1, '', '', '', '{{}}')",
        )
        await serve(store, NOW + second + 1)
    assert await times(store) == [(0, (NOW + 50) * 1000)]


async def test_old_lost_times_are_removed(store: Store) -> None:
    await serve(store, NOW)
    await last_entry(store, int(NOW + KEPT))
    await serve(store, NOW + KEPT + 1)
    assert await times(store) == [((NOW + KEPT) * 1000, (NOW + KEPT + 1) * 1000)]


@pytest.mark.parametrize(
    ("issued", "now", "is_covered"),
    [
        (100, 201, True),
        (100 - lost_times.MARGIN, 201, True),
        (100 - lost_times.MARGIN - 1, 201, False),
        (200 + lost_times.MARGIN, 201, True),
        (200 + lost_times.MARGIN + 1, 201, False),
        (150, 200 + KEPT, True),
        (150, 200 + KEPT + 1, False),
    ],
)
async def test_lost_time_covers_its_sessions_as_long_as_ended_ones_are_kept(
    store: Store, issued: float, now: float, *, is_covered: bool
) -> None:
    await rows(store, "UPDATE lost_time SET begin_ms=100000, end_ms=200000")
    found = await store.run(lost_times.cover, int(issued * 1000), now=now, kept=KEPT)
    assert found is is_covered
