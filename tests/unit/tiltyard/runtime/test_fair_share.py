"""The share of a resource that one account may take."""

from tiltyard.runtime.fair_share import exceeds_share


def test_account_alone_takes_half() -> None:
    assert not exceeds_share(held=0, asked=4, taken=0, total=8)
    assert not exceeds_share(held=3, asked=1, taken=3, total=8)
    assert exceeds_share(held=4, asked=1, taken=4, total=8)


def test_account_takes_half_of_what_others_leave() -> None:
    assert not exceeds_share(held=1, asked=1, taken=5, total=8)
    assert exceeds_share(held=2, asked=1, taken=6, total=8)


def test_account_that_holds_nothing_takes_the_last() -> None:
    assert not exceeds_share(held=0, asked=1, taken=7, total=8)
    assert exceeds_share(held=0, asked=1, taken=8, total=8)
