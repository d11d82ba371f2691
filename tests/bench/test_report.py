"""The page compares the figures of a run with those of earlier commits."""

import pytest

from tests.bench.report import BEGIN, COMMITS, END, RUNS, Result, with_figures, with_runs

CONTENT = {"machine": {"cores": 2}, "versions": {"python": "3.11"}}
PAGE = f"before\n{BEGIN}\nolder\n{END}\nafter"


def test_page_has_median_and_range_of_the_newest_commit_and_three_before() -> None:
    history = with_runs({}, [Result("rate", 7, "/s", least=10)], "oldest")
    for commit, values in {"c1": [1], "c2": [2, 4], "c3": [3], "c4": [20, 8, 6, 7]}.items():
        for value in values:
            history = with_runs(history, [Result("rate", value, "/s", least=10)], commit)
    history = with_runs(history, [Result("a.ms", 1, "ms")], "c4")
    commits = [commit for _, commit, _ in history["rate"]["runs"]]
    assert len(set(commits)) == COMMITS
    assert commits.count("c4") == RUNS

    page = with_figures(PAGE, history, CONTENT)
    today = history["a.ms"]["runs"][0][0]
    last = f"| `a.ms` | 1 ms |  | {today} | c4 |  |  |  |"
    assert page.splitlines()[-4:] == [last, "", END, "after"]
    row = f"| `rate` | **7 /s (6 to 8)** | at least 10 | {today} | c4 | 3 (c3) | 3 (c2) | 1 (c1) |"
    assert row in page.splitlines()
    assert "older" not in page
    assert with_figures(page, history, CONTENT) == page


@pytest.mark.parametrize(
    ("value", "close", "misses"),
    [
        (94, False, False),
        (96, True, False),
        (104, True, False),
        (106, False, True),
    ],
)
def test_figure_near_its_goal_is_at_the_goal(value: float, close: bool, misses: bool) -> None:
    most = Result("a", value, "ms", most=100)
    least = Result("a", 200 - value, "/s", least=100)
    for one in (most, least):
        assert one.goal.endswith(": at the goal") == close
        assert one.misses == misses
    assert not Result("a", 0, "sessions", most=0).misses
