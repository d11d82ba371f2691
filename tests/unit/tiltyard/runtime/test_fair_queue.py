from hypothesis import given
from hypothesis import strategies as st

from tiltyard.runtime.fair_queue import FairQueue

Joins = st.lists(st.sampled_from("abc"), max_size=30)


def _queue(accounts: str | list[str]) -> FairQueue[str]:
    queue = FairQueue[str]()
    for number, account in enumerate(accounts):
        queue.put(account, f"{account}{number}")
    return queue


def _served(queue: FairQueue[str]) -> list[str]:
    return list(iter(queue.pop, None))


def test_served_account_comes_last() -> None:
    queue = _queue("aab")
    assert queue.pop() == "a0"
    queue.put("c", "c3")
    queue.put("b", "b4")
    assert _served(queue) == ["b2", "a1", "c3", "b4"]


def test_item_that_does_not_fit_keeps_its_position() -> None:
    queue = _queue("aabb")
    assert queue.pop(lambda item: item not in {"a0", "b2"}) == "a1"
    assert queue.pop(lambda _: False) is None
    assert _served(queue) == ["b2", "a0", "b3"]


def test_removed_item_is_not_served() -> None:
    queue = _queue("aab")
    assert queue.remove("a", "a0")
    assert not queue.remove("a", "a0")
    assert not queue.remove("d", "a1")
    assert list(queue) == ["a1", "b2"]
    assert len(queue) == 2


@given(Joins)
def test_iterates_in_the_order_of_service(accounts: list[str]) -> None:
    assert list(_queue(accounts)) == _served(_queue(accounts))


@given(Joins)
def test_no_account_is_served_twice_before_another(accounts: list[str]) -> None:
    served = _served(_queue(accounts))
    assert len(served) == len(accounts)
    for account in set(accounts):
        own = [place for place, one in enumerate(served) if one[0] == account]
        for before, after in zip([-1, *own], own, strict=False):
            between = served[before + 1 : after]
            assert len({one[0] for one in between}) == len(between)
