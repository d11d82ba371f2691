"""Rules for the functions of tables: which statements they have, and that they note changes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import controlplane.storage.tables
from tests.support.source_trees import READS_SOURCES, modules, path_of, walk
from tests.unit.controlplane.storage.tables.seen_changes import KEYS

pytestmark = READS_SOURCES

WRITES = re.compile(rf"(INSERT INTO|UPDATE|DELETE FROM) ({'|'.join(KEYS)})\b")
WRITERS = {"write_row", "remove_some"}
MODULES = sorted(Path(controlplane.storage.tables.__file__).parent.rglob("*.py"))

LEFT = {"_remove_ended_parts", "begin_run", "join", "leave", "leave_all"}
"""These leave the note to a function that they call, or that calls them."""

WITHOUT_LISTENERS = {
    "mark_restored",  # Runs on a file that no program has opened
    "remove_old",  # Only readers of the log have events, and know that old ones go
    "remove_until",  # As `remove_old`
}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path in MODULES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                yield f"{path.stem}.{node.name}", node


def written_by(nodes: list[ast.AST]) -> set[str]:
    """The tables with a topic that statements in some code write."""
    texts = [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    by_name = {
        ast.literal_eval(node.args[1])
        for node in nodes
        if isinstance(node, ast.Call)
        and path_of(node.func) in WRITERS
        and [path_of(node.args[0]), type(node.args[1])] == ["db", ast.Constant]
    }
    by_text = {table for text in texts for _, table in WRITES.findall(text)}
    return by_name & set(KEYS) | by_text


def test_functions_that_write_note_what_they_change() -> None:
    found = {name for name, function in functions() if written_by(walk(function))}
    silent = {
        name
        for name, function in functions()
        if name in found and "db.changed(" not in ast.unparse(function)
    }
    assert len(found) > 30
    assert {name.partition(".")[2] for name in silent} <= LEFT | WITHOUT_LISTENERS


def test_rows_of_sessions_are_written_in_one_module() -> None:
    writers = [
        name
        for name, nodes in modules().items()
        if name.startswith("controlplane.") and "session" in written_by(nodes)
    ]
    assert writers == ["controlplane.storage.tables.sessions.session_rows"]


# ---- statements run on SQLite and PostgreSQL alike

BOOLEANS = (
    "confirmed|enabled|draining|trusts_former|private|host_network|image_init|contiguous"
    "|player_events|adopted_ended"
)
FORBIDDEN = {
    "parameter without a name": r"[=<>(,] ?\?|(LIMIT|OFFSET) \?",
    "SQLite's number of a row": r"\browid\b",
    "hint to SQLite's planner": r"(AND|WHERE|ON) \+\w",
    "integer as a boolean": rf"\b({BOOLEANS}) ?= ?[01]\b",
    "maximum of two values": r"\b(max|min)\([^()]*,",
    "INSERT OR": r"\b(INSERT|UPDATE) OR\b",
    "COLLATE": r"\bCOLLATE\b",
    "IS with a value": r"\bIS (NOT )?[:(]",
    "JSON in SQL": r"\bjson\w*\(|\bjson_each\b|->",
    "function of SQLite": r"\b(instr|group_concat|printf|ifnull|iif)\(",
    "conflict of any key": r"ON CONFLICT DO UPDATE",
}
BREAKING = {
    "parameter without a name": "SELECT 1 FROM token WHERE id=?",
    "SQLite's number of a row": "SELECT rowid FROM image",
    "hint to SQLite's planner": "SELECT 1 FROM session WHERE +agent=:agent",
    "integer as a boolean": "UPDATE agent SET draining=0",
    "maximum of two values": "UPDATE session SET ended_ms=max(created_ms, :end)",
    "INSERT OR": "INSERT OR IGNORE INTO region(name) VALUES (:name)",
    "COLLATE": "SELECT 1 FROM registry WHERE address = :address COLLATE NOCASE",
    "IS with a value": "SELECT 1 FROM token WHERE account IS :account",
    "JSON in SQL": "SELECT value FROM json_each(:ids)",
    "function of SQLite": "SELECT 1 FROM session WHERE instr(labels, :text)",
    "conflict of any key": "INSERT INTO tag(name) VALUES (:name) ON CONFLICT DO UPDATE SET name=1",
}


def found_in(sql: str) -> list[str]:
    return [what for what, pattern in FORBIDDEN.items() if re.search(pattern, sql)]


def texts(module: ast.Module) -> Iterator[str]:
    """The texts of a module without its documentation."""
    for node in ast.walk(module):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Constant) and not isinstance(node, ast.Expr):
                yield str(child.value)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_statements_run_on_both_databases(path: Path) -> None:
    module = ast.parse(path.read_text("utf-8"))
    broken = {text: found_in(text) for text in texts(module) if found_in(text)}
    assert broken == {}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_rule_for_statements_finds(what: str) -> None:
    assert found_in(BREAKING[what]) == [what]
