from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.domain.kept.preparation import (
    FORGOTTEN_SECONDS,
    REVIEW_SECONDS,
    STEADY_SECONDS,
    Demand,
    Plan,
    default_limit,
    plan,
)
from tests.support.agent.demands import NOW, ids, ordered, started


def planned(demands: Mapping[str, Demand], has: Mapping[str, int], **more: Any) -> Plan:
    kept = {key: ids(key, count) for key, count in has.items()}
    return plan(demands, kept, **{"limit": 100, "now": NOW, **more})


# -- what is wanted -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "demand",
    [
        started(),
        started(FORGOTTEN_SECONDS - 1),
        ordered(),
        replace(started(FORGOTTEN_SECONDS), ordered=True),
    ],
)
def test_one_is_kept_of_a_shape_that_is_ordered_or_started_lately(demand: Demand) -> None:
    assert planned({"a": demand}, {}) == Plan(begin=("a",))
    assert planned({"a": demand}, {"a": 1}) == Plan()


def test_none_is_kept_of_a_shape_that_was_not_started_for_an_hour() -> None:
    demand = started(FORGOTTEN_SECONDS, wanted=2)
    assert planned({"a": demand}, {}) == Plan()
    assert planned({"a": demand}, {"a": 2}) == Plan(discard=ids("a", 2))


def test_containers_of_an_unknown_shape_are_discarded() -> None:
    assert planned({}, {"a": 1}) == Plan(discard=ids("a", 1))


def test_oldest_are_discarded_first() -> None:
    assert planned({"a": started()}, {"a": 3}).discard == ("a-0", "a-1")


def test_start_that_finds_none_adds_one() -> None:
    demand = started(10.0, wanted=2, unused=1)
    after = demand.after_miss(NOW, most=16)
    assert after.wanted == 3
    assert after.unused == 0
    assert after.last_start == NOW


def test_misses_never_add_more_than_fit() -> None:
    assert started(wanted=16).after_miss(NOW, most=16).wanted == 16
    assert started(wanted=1).after_miss(NOW, most=0).wanted == 1


def test_start_that_takes_one_notes_how_many_are_left() -> None:
    demand = started(10.0, wanted=4, unused=3).after_start(NOW, waiting=2)
    assert demand.wanted == 4
    assert demand.unused == 2
    assert demand.last_start == NOW
    assert demand.after_start(NOW, waiting=3).unused == 2


@pytest.mark.parametrize(
    ("wanted", "unused", "left"),
    [
        (1, 0, 1),
        (1, 1, 1),
        (2, 1, 1),
        (2, 2, 1),
        (4, 0, 4),
        (4, 1, 3),
        (4, 2, 3),
        (4, 3, 2),
        (16, 16, 8),
    ],
)
def test_review_takes_half_of_what_lay_unused(wanted: int, unused: int, left: int) -> None:
    demand = started(wanted=wanted, unused=unused)
    due = NOW + REVIEW_SECONDS
    assert demand.at_review(due, waiting=wanted).wanted == left
    assert demand.at_review(due - 1, waiting=wanted) == demand


def test_review_begins_another_one() -> None:
    due = NOW + REVIEW_SECONDS
    demand = started(wanted=4, unused=0).at_review(due, waiting=3)
    assert demand.reviewed == due
    assert demand.unused == 3
    assert demand.at_review(due + 1, waiting=3) == demand


def test_containers_that_are_no_longer_there_were_not_unused() -> None:
    """They were lost to a failure, or are being replaced."""
    demand = started(wanted=4, unused=4).at_review(NOW + REVIEW_SECONDS, waiting=0)
    assert demand.wanted == 4
    assert demand.unused == 0


def test_many_that_are_not_used_become_one_in_40_minutes() -> None:
    demand = started(wanted=16, unused=16)
    now = NOW
    found = []
    for _ in range(5):
        now += REVIEW_SECONDS
        demand = demand.at_review(now, waiting=demand.wanted)
        found.append(demand.wanted)
    assert found == [8, 4, 2, 1, 1]


# -- order and limits -----------------------------------------------------------------------------


def test_each_shape_gets_its_first_before_any_gets_its_second() -> None:
    demands = {"a": started(0.0, wanted=3), "b": started(9.0, wanted=2), "c": ordered()}
    assert planned(demands, {}).begin == ("a", "b", "c", "a", "b", "a")


def test_shape_that_was_started_last_comes_first() -> None:
    demands = {"a": ordered(), "b": started(2.0), "c": started(1.0)}
    assert planned(demands, {}).begin == ("c", "b", "a")


def test_first_of_a_shape_displaces_a_second() -> None:
    demands = {"a": started(0.0, wanted=2), "b": started(1800.0, account="other")}
    assert planned(demands, {"a": 2}, limit=2) == Plan(begin=("b",), discard=("a-0",))


def test_shape_started_last_displaces_one_that_is_not_started_any_more() -> None:
    demands = {"a": started(STEADY_SECONDS), "b": started(account="other")}
    assert planned(demands, {"a": 1}, limit=1) == Plan(begin=("b",), discard=("a-0",))


def test_shape_of_the_last_minute_is_not_displaced() -> None:
    demands = {"a": started(STEADY_SECONDS - 1), "b": started(account="other")}
    assert planned(demands, {"a": 1}, limit=1) == Plan()


def test_ordered_shapes_do_not_displace_each_other() -> None:
    demands = {"a": ordered(), "b": ordered(account="other")}
    assert planned(demands, {"b": 1}, limit=1) == Plan()
    assert planned(demands, {"a": 1}, limit=1) == Plan()


def test_more_sessions_leave_less_room() -> None:
    demands = {"a": started(wanted=4), "b": started(5.0, wanted=4, account="other")}
    has = {"a": 4, "b": 4}
    assert planned(demands, has, limit=12) == Plan()
    assert planned(demands, has, limit=2) == Plan(discard=(*ids("a", 3), *ids("b", 3)))
    assert planned(demands, has, limit=0) == Plan(discard=(*ids("a", 4), *ids("b", 4)))


@pytest.mark.parametrize(
    ("limit", "count"),
    [
        (0, 0),
        (1, 1),
        (2, 1),
        (3, 2),
        (16, 8),
        (1000, 500),
    ],
)
def test_account_alone_has_at_most_half(limit: int, count: int) -> None:
    assert planned({"a": started(wanted=1000)}, {}, limit=limit).begin == ("a",) * count


def test_account_with_few_gets_its_part_from_one_that_has_many() -> None:
    demands = {"a": started(wanted=8), "b": started(wanted=8, account="other")}
    found = planned(demands, {"a": 8}, limit=16)
    assert found.begin == ("b",) * 5
    assert found.discard == ids("a", 2)


def test_accounts_that_start_in_turn_do_not_displace_each_other() -> None:
    has = {"a": 6, "b": 5}
    for later in ("a", "b"):
        demands = {
            key: started(0.0 if key == later else 1.0, wanted=8, account=key) for key in has
        }
        assert planned(demands, has, limit=16) == Plan()


def test_as_many_accounts_as_fit_get_one_each() -> None:
    demands = {f"{n:02}": started(float(n), account=f"account-{n}") for n in range(20)}
    assert planned(demands, {}, limit=16).begin == tuple(f"{n:02}" for n in range(16))


@pytest.mark.parametrize(
    ("memory_bytes", "limit"),
    [
        (2**30 - 1, 0),
        (2**30, 1),
        (16 * 2**30, 16),
        (1024 * 2**30, 16),
    ],
)
def test_one_is_kept_for_each_gibibyte_by_default(memory_bytes: int, limit: int) -> None:
    assert default_limit(memory_bytes) == limit


def test_shape_that_is_held_back_keeps_what_it_has() -> None:
    demands = {"a": started(wanted=3)}
    assert planned(demands, {"a": 1}, held_back=["a"]) == Plan()
    assert planned(demands, {"a": 4}, held_back=["a"]) == Plan(discard=("a-0",))


def test_shape_that_is_held_back_leaves_its_room_to_others() -> None:
    demands = {"a": started(), "b": started(9.0, account="other")}
    assert planned(demands, {}, limit=1, held_back=["a"]).begin == ("b",)
