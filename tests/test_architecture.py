"""The rules of docs/architecture.md that a machine can check, read off the imports."""

from __future__ import annotations

import ast
import functools
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agent", "controlplane")


@functools.cache
def modules(package: str) -> dict[str, ast.Module]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text("utf-8"))
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def imports(tree: ast.Module) -> set[str]:
    """Full names of everything that is imported, `from a import b` as both a and a.b."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def importers(prefix: str) -> set[str]:
    """Modules of both packages that import `prefix` or something below it."""
    return {
        name
        for package in PACKAGES
        for name, tree in modules(package).items()
        if any(one == prefix or one.startswith(f"{prefix}.") for one in imports(tree))
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_one_way(package: str) -> None:
    trees = modules(package)
    graph = {name: imports(tree) & set(trees) for name, tree in trees.items()}
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError


def test_the_two_programs_share_only_the_contract() -> None:
    assert not importers("controlplane") & set(modules("agent"))
    assert not importers("agent") & set(modules("controlplane"))


def test_what_is_foreign_is_imported_where_it_belongs() -> None:
    assert importers("docker") == {"agent.docker.sdk"}
    assert importers("tiltyard.agent.v1") == {
        "agent.cli.client",
        "agent.rpc",
        "agent.wire",
        "controlplane.fleet.agent_client",
        "controlplane.fleet.agent_wire",
    } | (importers("tiltyard.agent.v1.agent_pb2_grpc") & {"agent.daemon"})
    for name in importers("sqlite_utils") | importers("sqlite3"):
        assert name.startswith("controlplane.storage."), name


def test_the_environment_is_read_in_the_settings_alone() -> None:
    readers = {
        name
        for package in PACKAGES
        for name, tree in modules(package).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    }
    assert readers == {"agent.config", "controlplane.config"}


def test_no_task_is_left_without_a_name() -> None:
    for package in PACKAGES:
        for name, tree in modules(package).items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("create_task"):
                    assert any(word.arg == "name" for word in node.keywords), name


def test_modules_keep_their_size() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert len(path.read_text("utf-8").splitlines()) <= 400, path
