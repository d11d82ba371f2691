"""Tests of faults must check the invariants, and the page has their results."""

import subprocess
from pathlib import Path

import pytest

from tests.faults import evidence
from tests.faults.catalogue import FAULTS, NOT_YET
from tests.faults.results import Result, Results, commit_of
from tests.support.inner_pytest import run_pytest

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


def run_part(root: Path, *options: str) -> tuple[int, str]:
    """Run the tests of a repository as a part; return the exit code and output."""
    plugins = ("tests.faults.results", "tests.faults.plugin")
    return run_pytest(root, plugins, f"--evidence={root}/docs/evidence.md", *options)


def commit(root: Path, module: str) -> str:
    """Commit a test module in a repository, which is made if needed; return the commit."""
    (root / "test_it.py").write_text(module)
    (root / "docs").mkdir(exist_ok=True)
    (root / ".gitignore").write_text("/build/\n__pycache__/\n")
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "test"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return commit_of(root)


@pytest.mark.slow
def test_what_a_run_showed_is_written_down_and_nothing_unlooked_at_passes(tmp_path: Path) -> None:
    commit(tmp_path, MODULE)
    code, output = run_part(tmp_path, "--part=rounds", "-m", "fault", "--long", "--seed=1")
    page = tmp_path / "docs/evidence.md"
    assert code == 1, output
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


SLOW = """
import os
from pathlib import Path
import pytest

@pytest.mark.part_alone
def test_f01_that_passes(request):
    with (request.config.rootpath / "build/ran").open("a") as ran:
        ran.write("x")

@pytest.mark.parametrize("text", ["a@b"])
@pytest.mark.xdist_group("tests/one.py")
def test_of_a_group(request, text):
    test_f01_that_passes(request)

def test_that_fails_once(request):
    assert (request.config.rootpath / "build/fixed").exists()

def test_that_ends_the_run(request):
    if not (request.config.rootpath / "build/fixed").exists():
        os._exit(1)
"""
APART = ("--numprocesses=1", "--dist=loadgroup", "--max-worker-restart=0")


@pytest.mark.slow
@pytest.mark.parametrize(
    "apart",
    [
        (),
        APART,
    ],
)
def test_a_run_that_was_interrupted_resumes(tmp_path: Path, apart: tuple[str, ...]) -> None:
    ran = tmp_path / "build/ran"
    made = commit(tmp_path, SLOW)
    run_part(tmp_path, "--part=python", *apart)
    assert ran.read_text() == "xx"
    (tmp_path / "build/fixed").touch()
    code, output = run_part(tmp_path, "--part=python", *apart)
    assert code == 0, output
    assert "2 passed, 2 already passed" in output
    assert ran.read_text() == "xx"
    lines = (tmp_path / "docs/evidence.md").read_text().splitlines()
    [row] = [line for line in lines if line.startswith("| python |")]
    assert [cell.strip() for cell in row.split("|")][6:9] == ["4", "0", "0"]
    assert row.endswith(f"| {made} |")
    code, output = run_part(tmp_path, "--part=python", "--again", *apart)
    assert "4 passed" in output
    assert ran.read_text() == "xxxx"


@pytest.mark.slow
def test_changes_that_are_not_committed_are_neither_recorded_nor_skipped(tmp_path: Path) -> None:
    commit(tmp_path, "def test_it(): pass")
    assert run_part(tmp_path, "--part=python")[0] == 0
    assert "1 already passed" in run_part(tmp_path, "--part=python")[1]
    page = tmp_path / "docs/evidence.md"
    page.write_text("as it was")
    (tmp_path / "new.py").touch()
    output = run_part(tmp_path, "--part=python")[1]
    assert "1 passed" in output
    assert "not kept: there are changes that are not committed" in output
    assert page.read_text() == "as it was"
    for path in (page, tmp_path / "new.py"):
        path.unlink()
    made = commit(tmp_path, "def test_it(): assert True")
    assert "1 passed" in run_part(tmp_path, "--part=python")[1]
    assert made in page.read_text()


TEST = "tests/flow/test_races.py::test_f16_of_all_who_start_one_id_one_has_it_in_each_account"
SHOWN: list[tuple[str, object]] = [
    ("rounds", 3),
    ("seed", 7),
    ("figure", "kills: 3"),
    ("figure", "lost: 0"),
    ("checked", "I1, I2"),
    ("part alone", False),
]


@pytest.mark.parametrize("part", ["bookworm", "trixie", "sid", "python", "prepared"])
def test_what_did_not_run_now_stays_with_its_figures(tmp_path: Path, part: str) -> None:
    page = tmp_path / "evidence.md"
    results = Results(tmp_path, "abc", is_long=True)
    results.add(Result(TEST, "passed", "2026-11-26", 1.5, SHOWN))
    evidence.write(page, "rounds", results)
    [row] = [line for line in page.read_text().splitlines() if TEST in line]
    assert "| 3 | 7 | passed; kills: 3; lost: 0 | I1, I2 | abc |" in row
    evidence.write(page, part, results)
    before = page.read_text()
    assert row in before.splitlines()
    [other] = [line for line in before.splitlines() if line.startswith(f"| {part} |")]
    evidence.write(page, "rounds", Results(tmp_path, "def", is_long=True))
    after = page.read_text().splitlines()
    assert row in after
    assert other in after


def test_a_line_that_was_cut_off_is_no_result(tmp_path: Path) -> None:
    results = Results(tmp_path, "abc", is_long=False)
    results.add(Result("one", "failed", "2026-11-26", 1.5, []))
    with results.path.open("a") as file:
        file.write('{"test": "two", "outco')
    assert list(results.latest()) == ["one"]
    assert results.passed() == []
    results.add(Result("one", "passed", "2026-11-26", 1.5, []))
    results.add(Result("one", "passed", "2026-11-26", 1.5, []))
    assert results.passed() == ["one"]


def test_agents_that_prepare_containers_have_results_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Results(tmp_path, "abc", is_long=False).add(Result("one", "passed", "2026-11-26", 1.5, []))
    monkeypatch.setenv("TILTYARD_TEST_PREPARED", "8")
    assert Results(tmp_path, "abc", is_long=False).passed() == []
