"""The sources of the product as syntax trees, each parsed and walked once in a process.

Tests that read them are marked with `READS_SOURCES`, so that one process runs all of them.
"""

import ast
import functools
import gc
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "controlplane", "tiltyard")
GENERATED = ("_pb2", "_pb2_grpc")
READS_SOURCES = pytest.mark.xdist_group("sources")


@functools.cache
def sources() -> dict[str, str]:
    """The text of each module, by its full name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text("utf-8")
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not path.stem.endswith(GENERATED)
    }


@functools.cache
def modules() -> dict[str, list[ast.AST]]:
    """The nodes of each module, itself first, by its full name."""
    return {name: parsed(text) for name, text in sources().items()}


def file_of(module: str) -> str:
    """Return the path of a module within the repository."""
    return f"{module.replace('.', '/')}.py"


def parsed(text: str) -> list[ast.AST]:
    """Return the nodes of a module; the garbage collector would take half of the time."""
    gc.disable()
    try:
        return walk(ast.parse(text))
    finally:
        gc.enable()


def walk(tree: ast.AST) -> list[ast.AST]:
    """Return a node and all nodes below it, except contexts such as `ast.Load`.

    `ast.walk` takes twice the time.
    """
    found = [tree]
    for node in found:  # while it grows
        for value in vars(node).values():
            if value.__class__ is list:
                found += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                found.append(value)
    return found


def path_of(node: ast.AST) -> str:
    """Return `a` or `a.b` as it is written, "" for other expressions.

    `ast.unparse` of each call would take longer than all that tests do with the trees.
    """
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
