"""The tables of docs/architecture.md name what there is, and imports go the way that they say."""

from __future__ import annotations

import re

import pytest

from tests.doc_examples import ROOT
from tests.test_architecture import ALL, SHARED, imports, modules

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def named(package: str) -> list[list[str]]:
    """The names in each row of a program's table: `a`, `a/b`, or `a/` for the rest of a folder."""
    [table] = re.findall(
        rf"^\| row \| modules of `{package}/`.*\|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE
    )
    return [
        [name for code in re.findall(r"`([^`]+)`", row.split(" | ")[1]) for name in _each(code)]
        for row in table.splitlines()
    ]


def _each(code: str) -> list[str]:
    folder, brace, names = code.partition("{")
    return [folder + name.strip() for name in names.rstrip("}").split(",")] if brace else [code]


def rows(package: str) -> dict[str, int]:
    """The row of each module that stands in the table by its name or with its folder."""
    found: dict[str, int] = {}
    folders: dict[str, int] = {}
    for number, names in enumerate(named(package)):
        for name in names:
            where = folders if name.endswith("/") else found
            where[f"{package}.{name.rstrip('/').replace('/', '.')}"] = number
    for module in modules(package):
        for folder, number in folders.items():
            if module.startswith(f"{folder}."):
                found.setdefault(module, number)
    return found


@pytest.mark.parametrize("package", ALL)
def test_what_the_tables_name_is_there(package: str) -> None:
    names = [name for row in named(package) for name in row]
    assert len(names) == len(set(names))
    for name in names:
        path = (ROOT / "protos" if package == SHARED else ROOT) / package / name
        assert path.is_dir() if name.endswith("/") else path.with_suffix(".py").exists(), name


@pytest.mark.parametrize("package", ALL)
def test_every_module_has_its_row(package: str) -> None:
    lost = {name for name in set(modules(package)) - set(rows(package)) if "__" not in name}
    assert lost == set(), "name them in docs/architecture.md"


@pytest.mark.parametrize("package", ALL)
def test_a_module_imports_from_its_row_and_those_above(package: str) -> None:
    row = rows(package)
    against = [
        f"{module} imports {one}"
        for module, tree in modules(package).items()
        for one in imports(tree)
        if module in row and one in row and row[one] > row[module]
    ]
    assert against == []
