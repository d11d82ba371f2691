"""What holds for each plan of prepared containers, in all small cases and in random ones."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.kept.preparation import FORGOTTEN_SECONDS, STEADY_SECONDS, Demand, Plan, plan
from tests.support.agent.demands import NOW, a_shape, ids, started

Kept = dict[str, tuple[str, ...]]


def applied(kept: Kept, found: Plan) -> Kept:
    """The containers after a plan was carried out."""
    after = {
        key: tuple(each for each in own if each not in found.discard) for key, own in kept.items()
    }
    for number, key in enumerate(found.begin):
        after[key] = (*after.get(key, ()), f"{key}-new-{number}")
    return after


def check(demands: Mapping[str, Demand], kept: Kept, limit: int) -> None:
    """Check what holds for each plan."""
    found = plan(demands, kept, limit=limit, now=NOW)
    everything = [each for own in kept.values() for each in own]
    assert set(found.discard) <= set(everything)
    assert len(set(found.discard)) == len(found.discard)
    after = applied(kept, found)
    total = sum(map(len, after.values()))
    assert total <= limit
    held: Counter[str] = Counter()
    for key, own in after.items():
        held[demands[key].account] += len(own)
        assert len(own) <= (demands[key].wanted if demands[key].is_current(NOW) else 0)
        if key in found.begin:
            assert not set(found.discard) & set(kept.get(key, ()))
    for count in held.values():
        assert 2 * count <= limit - (total - count) + 1
    _check_rounds(demands, after)
    assert plan(demands, after, limit=limit, now=NOW) == Plan()


def _check_rounds(demands: Mapping[str, Demand], after: Kept) -> None:
    """No shape has a second container while one of the same account lacks its first."""
    counts = {key: len(after.get(key, ())) for key in demands}
    pairs = itertools.permutations(demands, 2)
    for has_more, has_less in pairs:
        same = demands[has_more].account == demands[has_less].account
        lacks = counts[has_less] < demands[has_less].wanted and demands[has_less].is_current(NOW)
        if same and lacks:
            assert counts[has_more] <= counts[has_less] + 1


def small_cases() -> Iterator[tuple[dict[str, Demand], Kept]]:
    """All states of three shapes, two of them of one account."""
    ages = (0.0, STEADY_SECONDS, FORGOTTEN_SECONDS)
    states = list(itertools.product(ages, (1, 2), (0, 2)))
    accounts = {"a": "acme", "b": "acme", "c": "other"}
    for chosen in itertools.product(states, repeat=3):
        demands = {}
        kept = {}
        for (key, account), (age, wanted, count) in zip(accounts.items(), chosen, strict=True):
            demands[key] = started(age, wanted=wanted, account=account)
            kept[key] = ids(key, count)
        yield demands, kept


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_all_small_cases(limit: int) -> None:
    for demands, kept in small_cases():
        check(demands, kept, limit)


KEYS = [f"shape-{number}" for number in range(9)]
DEMANDS = st.builds(
    lambda account, age, is_ordered, wanted: Demand(
        a_shape(account),
        NOW,
        ordered=is_ordered,
        last_start=None if age is None else NOW - age,
        wanted=wanted,
    ),
    st.sampled_from(["acme", "bravo", "cobra", "delta"]),
    st.none() | st.sampled_from([0.0, 1.0, 59.0, 61.0, 1800.0, 3599.0, 3601.0]),
    st.booleans(),
    st.integers(1, 12),
)


@given(
    st.dictionaries(st.sampled_from(KEYS), DEMANDS, min_size=1),
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 12)),
    st.integers(0, 40),
)
def test_any_case(demands: dict[str, Demand], has: dict[str, int], limit: int) -> None:
    kept = {key: ids(key, count) for key, count in has.items() if key in demands}
    check(demands, kept, limit)


@given(
    st.dictionaries(st.sampled_from(KEYS), DEMANDS, min_size=1),
    st.integers(0, 40),
    st.lists(st.sampled_from(KEYS)),
)
def test_starts_of_kept_shapes_displace_nothing(
    demands: dict[str, Demand], limit: int, starts: Sequence[str]
) -> None:
    """While only what is kept is used, no container is prepared in vain."""
    demands = {key: replace(demand, last_start=NOW) for key, demand in demands.items()}
    kept = applied({}, plan(demands, {}, limit=limit, now=NOW))
    for number, key in enumerate(starts, 1):
        now = NOW + number
        if kept.get(key):
            demands[key] = demands[key].after_start(now, waiting=len(kept[key]) - 1)
            assert plan(demands, kept, limit=limit, now=now) == Plan()
