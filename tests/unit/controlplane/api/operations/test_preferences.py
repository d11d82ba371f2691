import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.operations.preferences import LONGEST, SHORTEST, UNSAID, ready_wait


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        ([""], None),
        (["wait=60"], None),
        (["wait=1ready"], None),
        (["ready"], None),
        (["handling=strict; wait=ready"], None),
        (["wait=ready"], UNSAID),
        (["wait=ready; wait=60"], 60),
        (["wait=ready;wait=60"], 60),
        (["WAIT = Ready ; Wait = 60"], 60),
        (['wait="ready"; wait="60"'], 60),
        (["wait=ready, wait=60"], 60),
        (["wait=60, wait=ready"], 60),
        (["wait=60", "respond-async, wait=ready"], 60),
        (["wait=ready; wait=5, wait=60"], 5),
        (["respond-async, , wait=ready; foo; wait=60;, return=minimal"], 60),
        (['foo="a, wait=5; b"; c="\\"", wait=ready;wait=9'], 9),
        (["wait=ready; wait=1"], SHORTEST),
        (["wait=ready; wait=120"], LONGEST),
        (["wait=ready; wait=0"], SHORTEST),
        (["wait=ready; wait=121"], LONGEST),
        (["wait=ready; wait=999999999"], LONGEST),
        (["wait=ready; wait=-5"], UNSAID),
        (["wait=ready; wait=1.5"], UNSAID),
        (["wait=ready; wait=soon"], UNSAID),
        (["wait=ready; wait"], UNSAID),
        (["wait=ready; wait="], UNSAID),
        (["wait=ready; wait=٦٠"], UNSAID),
        (["wait=ready; wait=" + "9" * 5000], UNSAID),
        (['"wait=ready"'], None),
        (["wait=ready x"], None),
        (["; wait=ready"], None),
        ([";", ",", "=", '"', '"\\', "wait=ready"], UNSAID),
    ],
)
def test_what_a_header_asks_for(headers: list[str], seconds: int | None) -> None:
    assert ready_wait(headers) == seconds


@given(st.lists(st.text(st.characters())))
def test_no_header_breaks_it(headers: list[str]) -> None:
    assert ready_wait(headers) in {None, *range(SHORTEST, LONGEST + 1)}


@given(
    st.lists(st.text(st.sampled_from('wait=ready;,"\\ \t09x')), max_size=4),
    st.integers(SHORTEST, LONGEST),
)
def test_what_follows_changes_nothing_asked_first(others: list[str], seconds: int) -> None:
    assert ready_wait([f"wait=ready; wait={seconds}", *others]) == seconds


@pytest.mark.parametrize("text", ['"', '"\\', "a=", "wait=ready;", "wait=ready ", ' "', "\\"])
def test_it_takes_no_longer_than_reading(text: str) -> None:
    """Repeated reading of the same text would take hours."""
    assert ready_wait([text * 100_000, "a= " + " " * 100_000 + "x y"]) in {None, UNSAID}
