"""The rules of docs/architecture.md that a machine can check, read off the imports."""

from __future__ import annotations

import ast
import functools
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agent", "controlplane")
SHARED = "tiltyard"
"""What both programs import: protos/tiltyard, but for what protoc made of the contract."""
ALL = (*PACKAGES, SHARED)


def sources(package: str) -> dict[str, str]:
    """The text of each module, by its full name."""
    top = ROOT / "protos" if package == SHARED else ROOT
    return {
        ".".join(path.relative_to(top).with_suffix("").parts): path.read_text("utf-8")
        for path in sorted((top / package).rglob("*.py"))
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
    }


@functools.cache
def modules(package: str) -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in sources(package).items()}


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
    """Modules of ours that import `prefix` or something below it."""
    return {
        name
        for package in ALL
        for name, tree in modules(package).items()
        if any(one == prefix or one.startswith(f"{prefix}.") for one in imports(tree))
    }


@pytest.mark.parametrize("package", ALL)
def test_imports_run_one_way(package: str) -> None:
    trees = modules(package)
    graph = {name: imports(tree) & set(trees) for name, tree in trees.items()}
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError


def test_the_two_programs_never_import_each_other() -> None:
    assert not importers("controlplane") & set(modules("agent"))
    assert not importers("agent") & set(modules("controlplane"))


def test_what_both_import_knows_neither() -> None:
    shared = modules(SHARED)
    assert {name.split(".")[1] for name in shared} >= {"journal", "service", "settings"}
    assert not (importers("agent") | importers("controlplane")) & set(shared)


def test_what_is_shared_is_used_by_both() -> None:
    for folder in {name.rpartition(".")[0] for name in modules(SHARED)}:
        users = {name.partition(".")[0] for name in importers(folder)}
        assert users >= set(PACKAGES), folder


def test_what_is_foreign_is_imported_where_it_belongs() -> None:
    assert importers("docker") == {"agent.docker.sdk"}
    assert importers("tiltyard.agent.v1") == {
        "agent.cli.client",
        "agent.image_wire",
        "agent.rpc",
        "agent.wire",
        "controlplane.fleet.agent_client",
        "controlplane.fleet.agent_wire",
    } | (importers("tiltyard.agent.v1.agent_pb2_grpc") & {"agent.daemon"})
    assert importers("structlog") == {"tiltyard.journal.context", "tiltyard.journal.events"}
    for name in importers("sqlite_utils") | importers("sqlite3"):
        assert name.startswith("controlplane.storage."), name


def test_the_environment_is_read_in_the_settings_alone() -> None:
    readers = {
        name
        for package in ALL
        for name, tree in modules(package).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    }
    assert readers == {"agent.config", "controlplane.config"}


def test_no_task_is_left_without_a_name() -> None:
    for package in ALL:
        for name, tree in modules(package).items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("create_task"):
                    assert any(word.arg == "name" for word in node.keywords), name


def test_modules_keep_their_size() -> None:
    for package in ALL:
        for name, text in sources(package).items():
            assert len(text.splitlines()) <= 400, name
