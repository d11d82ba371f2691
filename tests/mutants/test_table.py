"""The tables fit the code, and the runner distinguishes survivors from killed mutants."""

import shutil
from dataclasses import replace
from pathlib import Path

import click
import pytest

from tests.mutants.__main__ import beginning_with, run_tests, survived, try_all
from tests.mutants.table import Mutant, load, mistakes
from tests.support.harness import ROOT

MUTANTS = load()


def test_mutants_fit_the_code_once_and_their_tests_exist() -> None:
    found = {mutant.name: mistakes(mutant, ROOT) for mutant in MUTANTS}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small source tree: a module, a test that looks at it, and one that does not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loading all takes seconds
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "least.py").write_text("def least(a, b):\n    return min(a, b)\n")
    (tmp_path / "test_least.py").write_text(
        "import least\n\n"
        "def test_finds_it():\n    assert least.least(1, 2) == 1\n\n"
        "class TestMore:\n"
        "    def test_sees_nothing(self):\n        assert least.least(1, 1) == 1\n"
    )
    return tmp_path


FOUND = Mutant("max", "least.py", "min(", "max(", ("test_least.py::test_finds_it",))
UNSEEN = replace(FOUND, tests=("test_least.py::TestMore::test_sees_nothing",))


def test_reports_the_tests_that_pass_in_spite_of_a_mutation(tree: Path) -> None:
    assert run_tests(tree, [*FOUND.tests, *UNSEEN.tests])[0] == 0
    assert survived(tree, FOUND) == []
    assert survived(tree, UNSEEN) == list(UNSEEN.tests)
    assert "min(" in (tree / "least.py").read_text()


@pytest.mark.parametrize(
    "mutant",
    [
        replace(FOUND, old="maximum("),
        replace(FOUND, old="a"),
        replace(FOUND, new="min("),
        replace(FOUND, new="max(("),
        replace(FOUND, file="most.py"),
        replace(FOUND, tests=()),
        replace(FOUND, tests=("test_most.py::test_finds_it",)),
        replace(FOUND, tests=("test_least.py::test_of_old",)),
        replace(FOUND, tests=("test_least.py::TestMore::test_finds_it",)),
        replace(FOUND, tests=("test_least.py",)),
    ],
    ids=str,
)
def test_finds_a_row_that_no_longer_fits(tree: Path, mutant: Mutant) -> None:
    assert mistakes(replace(FOUND, tests=FOUND.tests + UNSEEN.tests), tree) == []
    assert len(mistakes(mutant, tree)) == 1


def test_a_mutation_of_the_same_size_is_compiled_again_and_so_is_its_end(tree: Path) -> None:
    assert run_tests(tree, FOUND.tests)[0] == 0
    kept = sorted((file, file.stat().st_mtime_ns) for file in tree.rglob("*.pyc"))
    assert {file.name.split(".")[0] for file, _ in kept} == {"least", "test_least"}
    assert survived(tree, FOUND) == []
    assert run_tests(tree, FOUND.tests)[0] == 0
    assert sorted((file, file.stat().st_mtime_ns) for file in tree.rglob("*.pyc")) == kept


def test_mutants_are_tried_side_by_side(
    tree: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path_factory.mktemp("tree")
    shutil.copytree(tree, other, dirs_exist_ok=True)
    assert try_all([FOUND, UNSEEN, FOUND], [tree, other]) == 1
    states = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert states == ["killed", "SURVIVED", "passes:", "killed"]


def test_run_goes_on_with_a_mutant() -> None:
    assert beginning_with("", MUTANTS) == MUTANTS
    assert beginning_with(MUTANTS[0].name, MUTANTS) == MUTANTS
    assert beginning_with(MUTANTS[2].name, MUTANTS) == MUTANTS[2:]
    with pytest.raises(click.ClickException, match="no mutant x"):
        beginning_with("x", MUTANTS)


def test_does_not_count_a_test_that_cannot_be_run_as_failed(tree: Path) -> None:
    with pytest.raises(click.ClickException, match="cannot run"):
        survived(tree, replace(FOUND, tests=("test_least.py::test_of_old",)))


HANGS = """
import time

def test_hangs():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            continue
"""


def test_of_a_test_that_hangs_the_stack_is_shown(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "test_hangs.py").write_text(HANGS)
    monkeypatch.setattr("tests.mutants.__main__.TIMEOUT", 1)
    code, output = run_tests(tree, ["test_hangs.py"], seconds=20)
    assert code == 1
    assert "time.sleep(60)" in output
