"""The `console` blocks of the documentation: commands and their output."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))


_COMMENT = re.compile(r"\s# .*")


@dataclass(frozen=True)
class Example:
    """A command of a page, and its documented output."""

    heading: str  # The heading above it
    prompt: str  # `$` for any user, `#` for root
    command: str
    shown: str

    def check(self, output: str) -> None:
        """Raise AssertionError unless the output is as documented.

        JSON must have the same properties and types. In other text `…` matches anything.
        """
        if self.shown.startswith("{"):
            assert shape(json.loads(output)) == shape(json.loads(self.shown)), output
        else:
            wanted = ".*".join(map(re.escape, self.shown.split("…")))
            assert re.fullmatch(wanted, output.strip(), re.DOTALL), (self.command, output)


def examples(page: str) -> Iterator[Example]:
    """Parse the commands of a page in order; an open quote or `\\` continues one."""
    for heading, block in console_blocks(page):
        lines = iter(block.splitlines())
        command = next(lines)
        while command:
            assert command[:2] in {"$ ", "# "}, command
            while _COMMENT.sub("", command).count("'") % 2 == 1 or command.endswith("\\"):
                command += "\n" + next(lines)
            shown = []
            following = ""
            for line in lines:
                if line[:2] in {"$ ", "# "}:
                    following = line
                    break
                shown.append(line)
            yield Example(heading, command[0], command[2:], "\n".join(shown))
            command = following


def console_blocks(page: str) -> Iterator[tuple[str, str]]:
    """Yield each `console` block with the heading above it."""
    heading = ""
    for found in re.finditer(
        r"^```(?P<kind>\w*)\n(?P<block>.*?)^```$|^#+ (?P<heading>[^\n]+)$",
        page,
        re.MULTILINE | re.DOTALL,
    ):
        if found["heading"] is not None:
            heading = found["heading"]
        elif found["kind"] == "console":
            yield heading, found["block"]


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def shape(value: Any) -> Any:
    """Reduce a value to the names of its properties and their types."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__
