"""Every statement of the tables finds its rows by an index, and every index has a statement."""

import ast
import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from controlplane.storage.tables.access import tokens
from tests.support.controlplane.transactions import new_database
from tests.unit.controlplane.storage.tables.all_statements import (
    TABLES,
    Recorder,
    Statement,
    record,
    record_lists,
)

CALLS = {"execute", "executemany", "write_row", "remove_some", "begin_epoch", "position"}

SMALL = {
    "account",
    "agent",
    "application",
    "enrolment_token",
    "event_counter",
    "event_start",
    "json_each",
    "lost_time",
    "node_pool",
    "region",
    "registry",
    "warm_pool",
    "webhook",
    "webhook_progress",
}
"""What may be read as a whole: lists of a statement, tables that operators or accounts bound."""

SCANS = {
    "audit._last_scanned": 1,  # a bounded number, newest first
    "audit.find": 4,  # pages without a filter that has an index, newest first, and bounded
    "enrolment.enrol": 1,  # skipped by SQLite: no session refers to an agent without a row
    "exposure.find": 1,  # all sessions of one host, for operators
    "fleet.declare": 1,  # skipped by SQLite, as above
    "session_lists.find_page": 3,  # pages with ended sessions, newest first, for operators
    "stop_orders.all_pending_stops": 1,  # its index has pending orders alone
    "tokens.find": 1,  # those of all accounts, for operators
}
"""How many statements of a function may read the rows of another table as a whole, once each."""


@pytest.fixture(scope="module")
def statements() -> Iterator[set[Statement]]:
    db = Recorder()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(tokens, "MAX_ENDED_TOKENS", -1)
        record(db)
    asyncio.run(record_lists(db))
    yield db.statements
    db.close()


def scanned(statement: Statement) -> list[str]:
    """The tables that a statement reads as a whole, without small ones."""
    steps = "\n".join(statement.plan)
    parts = {"CONSTANT", *re.findall(r"(?:CO-ROUTINE|MATERIALIZE) (\w+)", steps)}
    return [name for name in re.findall(r"SCAN (\w+)", steps) if name not in SMALL | parts]


def places() -> dict[tuple[str, int], str]:
    """The places that execute a statement, with each of their lines."""
    found = {}
    for path in TABLES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in CALLS:
                for line in range(node.lineno, (node.end_lineno or 0) + 1):
                    found[path.stem, line] = f"{path.stem}:{node.lineno}"
    return found


def test_all_statements_are_recorded(statements: set[Statement]) -> None:
    known = places()
    assert len(set(known.values())) > 100
    executed = {known[statement.place] for statement in statements}
    assert set(known.values()) - executed == set()


def test_statements_find_rows_by_index(statements: set[Statement]) -> None:
    scans = [statement for statement in statements if scanned(statement)]
    assert Counter(statement.function for statement in scans) == SCANS
    assert [statement for statement in scans if len(scanned(statement)) > 1] == []


def test_each_index_is_used(statements: set[Statement]) -> None:
    db = new_database()
    sql = "SELECT name FROM sqlite_master WHERE type='index' AND sql IS NOT NULL"
    made = db.execute(sql).fetchall()
    db.close()
    steps = "\n".join(step for statement in statements for step in statement.plan)
    assert [name for (name,) in made if not re.search(rf"\bINDEX {name}\b", steps)] == []


def test_report_of_live_session_writes_no_index(statements: set[Statement]) -> None:
    by_end = {
        "ended_ms" in sql: writes_index(sql)
        for function, _, sql, _ in statements
        if function == "session_rows.write_report"
    }
    assert by_end == {False: False, True: True}


def writes_index(sql: str) -> bool:
    """Return whether a statement writes an index."""
    db = new_database()
    steps = db.execute(f"EXPLAIN {sql}", defaultdict(lambda: None)).fetchall()
    db.close()
    return any(step[1] == "IdxInsert" for step in steps)


def test_tokens_of_account_are_found_by_index(statements: set[Statement]) -> None:
    """Those of all accounts are not."""
    found = [statement for statement in statements if statement.function == "tokens.find"]
    assert {":account" in statement.sql: bool(scanned(statement)) for statement in found} == {
        True: False,
        False: True,
    }
