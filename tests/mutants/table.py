"""The tables of mutations: one TOML file per area beside this module.

A row of a table:

    [[mutant]]
    name = "lifetime-of-another-boot"       # unique in all files
    file = "agent/domain/sessions/deadlines.py"
    old = '''exact text, found once in the file'''
    new = '''what takes its place'''
    tests = ["tests/agent/test_x.py::test_y"]  # each of them must fail
"""

import ast
import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TABLES = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Mutant:
    """One row."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Return the text of its file with the mutation.

        Raises ValueError unless the old text occurs exactly once.
        """
        found = text.count(self.old)
        if found != 1 or self.old == self.new:
            raise ValueError(f"cannot apply mutant {self.name}: its old text occurs {found} times")
        return text.replace(self.old, self.new)


def load(folder: Path = TABLES) -> list[Mutant]:
    """Return the rows of all tables.

    Raises ValueError for two rows of one name, TypeError for a row of another form.
    """
    mutants = [
        Mutant(**{**row, "tests": tuple(row["tests"])})
        for path in sorted(folder.glob("*.toml"))
        for row in tomllib.loads(path.read_text("utf-8"))["mutant"]
    ]
    names = [mutant.name for mutant in mutants]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"cannot load mutants: two of one name: {', '.join(twice)}")
    return mutants


def mistakes(mutant: Mutant, root: Path) -> list[str]:
    """Return what is wrong with a row: text that does not fit, tests that are not there."""
    found = []
    try:
        mutated = mutant.applied((root / mutant.file).read_text("utf-8"))
        if mutant.file.endswith(".py"):  # a C compiler reports the mistakes of others
            ast.parse(mutated)
    except (OSError, ValueError, SyntaxError) as error:
        found.append(str(error))
    if not mutant.tests:
        found.append("it names no test")
    return found + [f"there is no {test}" for test in mutant.tests if not exists(test, root)]


def exists(test: str, root: Path) -> bool:
    """Return whether `path::[Class::]function[case]` is defined; the case is not looked at."""
    path, *names = test.partition("[")[0].split("::")
    if not names or not (root / path).is_file():
        return False
    return tuple(names) in _definitions((root / path).read_text("utf-8"))


@functools.cache
def _definitions(text: str) -> frozenset[tuple[str, ...]]:
    """Return the names of the functions and classes of a module, and of those in its classes.

    Many rows name tests of one module, which is parsed once.
    """
    return frozenset(_named(ast.parse(text), ()))


def _named(inside: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for node in ast.iter_child_nodes(inside):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield (*names, node.name)
            if isinstance(node, ast.ClassDef):
                yield from _named(node, (*names, node.name))
