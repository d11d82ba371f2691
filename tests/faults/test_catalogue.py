"""Every fault has a test, and the list of faults is complete."""

import ast
import functools
from pathlib import Path

from tests.faults.catalogue import FAULTS, NOT_YET, WITHOUT_HOSTS
from tests.faults.ledger import fault_of
from tests.support.source_trees import READS_SOURCES

pytestmark = READS_SOURCES

TESTS = Path(__file__).resolve().parents[1]


@functools.cache
def _tests_of_faults() -> list[tuple[int, str]]:
    """The number and the decorators of each test of a fault, as written."""
    texts = [path.read_text() for path in TESTS.rglob("test_*.py")]
    functions = [
        node
        for text in texts
        if "def test_f" in text  # most have none, and need not be parsed
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    faults = [(fault_of(function.name), function) for function in functions]
    return [
        (fault, " ".join(map(ast.unparse, function.decorator_list)))
        for fault, function in faults
        if fault is not None
    ]


def test_the_list_is_whole() -> None:
    assert list(FAULTS) == list(range(1, 59))


def test_every_fault_has_a_test_that_looks_at_a_host_or_a_reason_why_not() -> None:
    tested = {number for number, marks in _tests_of_faults() if "part_alone" not in marks}
    assert tested | set(NOT_YET) | WITHOUT_HOSTS == set(FAULTS)
    assert not tested & set(NOT_YET), "these have tests, and no reason to have none"


def test_every_fault_that_concerns_no_host_has_a_test_of_one_part_alone() -> None:
    alone = {number for number, marks in _tests_of_faults() if "part_alone" in marks}
    assert alone >= WITHOUT_HOSTS


def test_no_test_is_of_a_fault_that_is_not_in_the_list() -> None:
    assert {number for number, _ in _tests_of_faults()} <= set(FAULTS)
