"""The page of what was shown, over several runs."""

from pathlib import Path

import pytest

from tests.faults.evidence import Evidence

TEST = "tests/flow/test_races.py::test_f16_of_all_who_start_one_id_one_has_it_in_each_account"
SHOWN: list[tuple[str, object]] = [
    ("rounds", 3),
    ("seed", 7),
    ("figure", "kills: 3"),
    ("figure", "lost: 0"),
]


def test_what_did_not_run_now_stays_with_its_figures(tmp_path: Path) -> None:
    page = tmp_path / "evidence.md"
    where, run = ("", None, ""), Evidence()
    run.add(pytest.TestReport(TEST, where, {}, "passed", None, "call", user_properties=SHOWN))
    run.write(page)
    [row] = [line for line in page.read_text().splitlines() if TEST in line]
    assert "| 3 | 7 | passed; kills: 3; lost: 0 |" in row
    Evidence().write(page)
    assert row in page.read_text().splitlines()
