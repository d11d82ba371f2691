"""Each line of the log is an event of constant text and fields that are documented."""

import ast
import re
from collections.abc import Iterator

from tests.support.source_trees import READS_SOURCES, ROOT, modules, path_of, sources

pytestmark = READS_SOURCES

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGGERS = {"log", "_log", "self._log"}
OF_EVERY_LINE = {"time", "level", "event", "logger", "exception", "left_out"}
OF_CONTAINED = "self._event"  # Of `contained` in runtime/tasks, whose own calls are checked
BOUND = {
    "request",
    "account",
    "session",
    "agent",
    "trace_id",
}  # Fields that the context of a task carries


def calls() -> Iterator[tuple[str, ast.Call, list[ast.expr]]]:
    """Every call of a logger, or of `contained`: where, and its arguments without a level."""
    for name, nodes in modules().items():
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            target = node.func
            arguments = node.args
            if path_of(target) == "partial" and arguments:
                target = arguments[0]
                arguments = arguments[1:]
            if path_of(target) == "contained":
                yield f"{name}:{node.lineno}", node, arguments
            if not isinstance(target, ast.Attribute):
                continue
            if path_of(target.value) not in LOGGERS:
                continue
            where = f"{name}:{node.lineno}"
            if target.attr == "log":
                yield where, node, arguments[1:]
            elif target.attr in LEVELS:
                yield where, node, arguments


def documented() -> set[str]:
    """The fields of the table in docs/operations.md."""
    text = (ROOT / "docs/operations.md").read_text("utf-8")
    section = text.partition("\n## Logs\n")[2].partition("\n## ")[0]
    section = section.partition("| field |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}


def test_events_are_constant_text() -> None:
    found = list(calls())
    assert len(found) > 140, "the calls are not found"
    for where, _, arguments in found:
        [event] = arguments
        if ast.unparse(event) == OF_CONTAINED:
            continue
        for one in [event.body, event.orelse] if isinstance(event, ast.IfExp) else [event]:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                assert not re.search(r"%[sdrg]|[{}\n=]", one.value), f"{where}: {one.value}"
            else:  # the name of a constant
                is_name = isinstance(one, ast.Name) and one.id.isupper()
                assert is_name, f"{where}: what varies belongs into a field"


def test_fields_are_those_that_are_documented() -> None:
    known = documented()
    used = {word.arg for _, call, _ in calls() for word in call.keywords if word.arg}
    used -= {"exc_info"}
    assert used | BOUND | OF_EVERY_LINE | {"id", "application", "pool"} == known


def test_nobody_goes_around_it() -> None:
    for name, text in sources().items():
        assert "logging.getLogger(__name__)" not in text, name
        assert "logging.basicConfig" not in text, name
