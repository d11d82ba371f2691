"""The figures on the page: new ones replace old ones, and the rest of the page stays."""

from tests.bench.report import BEGIN, END, Result, with_figures

CONTENT = {"machine": {"cores": 2}, "versions": {"python": "3"}, "commit": "a" * 40 + "+"}
EMPTY = f"# Title\n\n{BEGIN}\n{END}\n\nWords.\n"
GOOD = Result("part.good", 1.0, "x", most=1.05)
MISSED = Result("part.missed", 0.5, "x", least=0.95)


def rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| `")]


def test_figures_stand_between_what_is_written_by_hand() -> None:
    page = with_figures(EMPTY, [GOOD, MISSED], CONTENT)
    assert page.startswith("# Title\n\n")
    assert page.endswith("\n\nWords.\n")
    assert "- machine: cores 2" in page
    good, missed = rows(page)
    assert good.startswith("| `part.good` | 1 x | at most 1.05 |")
    assert missed.startswith("| `part.missed` | **0.5 x** | at least 0.95 |")
    assert good.endswith("| aaaaaaa+ |")


def test_a_part_that_ran_alone_leaves_the_others() -> None:
    page = with_figures(EMPTY, [GOOD, MISSED], CONTENT)
    again = with_figures(page, [Result("part.good", 2.0, "x")], {**CONTENT, "commit": "b" * 40})
    first, second = rows(again)
    assert "2 x" in first
    assert first.endswith("| bbbbbbb |")
    assert second == rows(page)[1]
    assert with_figures(again, [], {**CONTENT, "commit": "b" * 40}) == again
