"""Whose turn it is: accounts one after the other, of each who came first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.fair_queue import FairLine

Joins = st.lists(st.sampled_from("abc"), max_size=30)


def _line(accounts: str | list[str]) -> FairLine[str]:
    line = FairLine[str]()
    for number, account in enumerate(accounts):
        line.join(account, f"{account}{number}")
    return line


def _served(line: FairLine[str]) -> list[str]:
    served = []
    while (one := line.first(lambda _: True)) is not None:
        line.serve(one[0], one)
        served.append(one)
    return served


def test_a_storm_of_one_account_costs_another_one_turn() -> None:
    line = _line("aaaab")
    assert _served(line) == ["a0", "b4", "a1", "a2", "a3"]
    assert len(line) == 0


def test_who_is_served_waits_for_all_others() -> None:
    line = _line("aab")
    line.serve("a", "a0")
    line.join("c", "c3")
    line.join("b", "b4")
    assert _served(line) == ["b2", "a1", "c3", "b4"]


def test_popping_serves_whose_turn_it_is() -> None:
    line = _line("aaabb")
    assert [line.pop() for _ in range(4)] == ["a0", "b3", "a1", "b4"]
    line.join("c", "c5")
    assert [line.pop() for _ in range(len(line))] == ["a2", "c5"]
    with pytest.raises(LookupError):
        line.pop()


def test_what_does_not_fit_lets_others_pass_and_keeps_its_place() -> None:
    line = _line("aabb")
    assert line.first(lambda one: one not in {"a0", "b2"}) == "a1"
    line.serve("a", "a1")
    assert _served(line) == ["b2", "a0", "b3"]
    assert line.first(lambda _: False) is None


def test_who_leaves_is_not_served() -> None:
    line = _line("aab")
    line.leave("a", "a0")
    line.leave("a", "a0")
    line.leave("d", "a1")
    assert (list(line), len(line)) == (["a1", "b2"], 2)


@given(Joins)
def test_the_order_is_that_of_service(accounts: list[str]) -> None:
    assert list(_line(accounts)) == _served(_line(accounts))


@given(Joins)
def test_nobody_waits_longer_than_one_turn_of_each_other_account(accounts: list[str]) -> None:
    served = _served(_line(accounts))
    assert len(served) == len(accounts)
    for account in set(accounts):
        own = [place for place, one in enumerate(served) if one[0] == account]
        for before, after in zip([-1, *own], own, strict=False):
            between = served[before + 1 : after]
            assert len({one[0] for one in between}) == len(between)


@given(Joins, st.sampled_from("abcd"))
def test_ahead_is_how_many_are_served_before(accounts: list[str], account: str) -> None:
    line = _line(accounts)
    ahead = line.ahead(account)
    line.join(account, f"{account}!")
    others_first = _served(line).index(f"{account}!")
    assert others_first <= ahead
    assert ahead <= others_first + len(set(accounts) - {account})
