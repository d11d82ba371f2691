"""When a warm pool counts as full or short."""

from controlplane.domain.applications.pool_fill import SHORT_AFTER, PoolFill, PoolFills


def look(fills: PoolFills, ready: int, now: float, revision: int = 1) -> PoolFill | None:
    fill = fills.look("p", revision, size=2, ready=ready, now=now)
    if fill is not None:
        fills.note_written(fill, revision)
    return fill


def test_full_pool_is_news_once() -> None:
    fills = PoolFills()
    assert look(fills, 2, 0.0) == PoolFill("p", True, 2, 2)
    assert look(fills, 3, 1.0) is None


def test_claim_that_is_replaced_in_time_is_no_news() -> None:
    fills = PoolFills()
    look(fills, 2, 0.0)
    assert look(fills, 1, 1.0) is None
    assert "p" in fills.pending
    assert look(fills, 2, SHORT_AFTER) is None
    assert "p" not in fills.pending
    assert look(fills, 1, SHORT_AFTER + 1) is None


def test_pool_that_lacks_standbys_for_long_is_short_until_it_is_full() -> None:
    fills = PoolFills()
    look(fills, 1, 0.0)
    assert look(fills, 0, SHORT_AFTER) == PoolFill("p", False, 2, 0)
    assert look(fills, 1, SHORT_AFTER + 1) is None
    assert look(fills, 2, SHORT_AFTER + 2) == PoolFill("p", True, 2, 2)


def test_pool_that_was_changed_is_news_again() -> None:
    fills = PoolFills()
    look(fills, 2, 0.0)
    assert look(fills, 2, 1.0, revision=2) == PoolFill("p", True, 2, 2)


def test_state_that_was_not_written_stays_news() -> None:
    fills = PoolFills()
    for now in (0.0, 1.0):
        assert fills.look("p", 1, size=2, ready=2, now=now) is not None


def test_pool_that_was_forgotten_is_news_again() -> None:
    fills = PoolFills()
    look(fills, 2, 0.0)
    fills.forget("p")
    assert look(fills, 2, 1.0) is not None
