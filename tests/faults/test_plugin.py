"""Tests of faults look for what must hold after them, and their page says how they ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.catalogue import FAULTS, NOT_YET
from tests.faults.evidence import Evidence
from tests.support.harness import ROOT

MODULE = """
import pytest
from tests.faults.ledger import ledger

def test_something_else(): raise AssertionError("this is of no fault")

def test_f01_that_looks(rounds, figure):
    assert rounds(1, 100) == 100
    figure("kills", 100)
    figure("sessions lost", 0)
    ledger.checked |= {1, 11}
    ledger.late_seconds, ledger.lines_lost = 2.25, 7

@pytest.mark.parametrize("number", [1, 2])
def test_f02_by_chance(chance, number):
    assert chance.random() == 0.13436424411240122
    ledger.checked.add(1)

@pytest.mark.part_alone
def test_f02_of_a_part(): pass

def test_f03_that_does_not_look(): pass

def test_f04_that_fails(): raise AssertionError("broken")

@pytest.fixture
def host():
    yield
    raise AssertionError("I1: something is left")

def test_f05_whose_end_fails(host): ledger.checked.add(1)

@pytest.mark.skip(reason="cannot be had")
def test_f06_that_is_skipped(): pass
"""


@pytest.mark.slow
def test_what_a_run_showed_is_written_down_and_nothing_unlooked_at_passes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(MODULE)
    page = tmp_path / "evidence.md"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "tests.faults.plugin"),
            *("-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path),
            *("--faults", "--long", "--seed", "1", "--evidence", page, tmp_path / "test_it.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    assert "test_f03_that_does_not_look does not look for what must hold" in output
    assert "1 failed, 6 passed, 1 skipped, 1 deselected, 2 errors" in output
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    results = {
        cells[3].removeprefix("`test_it.py::").partition("`")[0]: cells[3:]
        for cells in ([cell.strip() for cell in row.split("|")] for row in rows)
        if "test_it" in cells[3]
    }
    assert results["test_f01_that_looks"][1] == "100"
    assert results["test_f01_that_looks"][3] == (
        "passed; kills: 100; sessions lost: 0; latest end: 2.2 s; lines lost: 7"
    )
    assert results["test_f01_that_looks"][4] == "I1, I11"
    assert results["test_f02_by_chance"][1:4] == ["2", "1, 1", "passed"]
    assert results["test_f02_of_a_part"][0].endswith("` †")
    assert results["test_f03_that_does_not_look"][3] == "failed"
    assert results["test_f04_that_fails"][3] == "failed"
    assert results["test_f05_whose_end_fails"][3] == "failed"
    assert results["test_f06_that_is_skipped"][3] == "skipped"
    assert not any("something_else" in row for row in rows)
    numbers = [row.split("|")[1].strip() for row in rows if row.startswith("| F")]
    assert numbers == [f"F{number:02}" for number in FAULTS]
    for number, why in NOT_YET.items():
        assert f"| F{number:02} | {FAULTS[number]} | none: {why} |" in page.read_text()


TEST = "tests/flow/test_races.py::test_f16_of_all_who_start_one_id_one_has_it_in_each_account"
SHOWN: list[tuple[str, object]] = [
    ("rounds", 3),
    ("seed", 7),
    ("figure", "kills: 3"),
    ("figure", "lost: 0"),
    ("checked", "I1, I2"),
    ("late", 0.0),
    ("lost", 0),
]


def test_what_did_not_run_now_stays_with_its_figures(tmp_path: Path) -> None:
    page = tmp_path / "evidence.md"
    where, run = ("", None, ""), Evidence()
    run.add(pytest.TestReport(TEST, where, {}, "passed", None, "teardown", user_properties=SHOWN))
    run.write(page)
    [row] = [line for line in page.read_text().splitlines() if TEST in line]
    assert "| 3 | 7 | passed; kills: 3; lost: 0 | I1, I2 |" in row
    Evidence().write(page)
    assert row in page.read_text().splitlines()
