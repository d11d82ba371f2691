"""The commands and options that the pages show are there."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import agent.cli.main
import controlplane.cli.main
from tests.support.doc_examples import PAGES, ROOT, console_blocks, prose

PROGRAMS: dict[str, click.Command] = {
    "tiltyard-agent": agent.cli.main.main,
    "tiltyard-controlplane": controlplane.cli.main.main,
}


def _spans(page: Path) -> Iterator[str]:
    """Give what a page shows as typed: in `console` blocks, and between backquotes."""
    for _, block in console_blocks(page.read_text("utf-8")):
        yield from (line[2:] for line in block.splitlines() if line[:2] in {"$ ", "# "})
    yield from (found.replace("\n", " ") for found in re.findall(r"`([^`]+)`", prose(page)))


def _typed(page: Path, program: str) -> Iterator[list[str]]:
    """Give the words of each call of a program, without it."""
    for span in _spans(page):
        for part in re.split(r"[|;&]+| #", span):
            words = part.split()
            while words and re.fullmatch(r"[A-Z_]+=\S*|sudo|umask|\d{3}", words[0]):
                words.pop(0)
            if words[:1] == [program]:
                yield words[1:]


def _unknown(command: click.Command, words: list[str]) -> str:
    """Say which of these words the command does not have, or nothing."""
    known = {option for one in command.params for option in one.opts} | {"--help"}
    for index, word in enumerate(words):
        if word.startswith("--") and word.partition("=")[0].rstrip(".,…") not in known:
            return word
        if isinstance(command, click.Group) and re.match(r"[a-z]", word):
            if word not in command.commands:
                return word
            return _unknown(command.commands[word], words[index + 1 :])
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_and_option_is_there(program: str, page: Path) -> None:
    lost = {
        " ".join([program, *words])
        for words in _typed(page, program)
        if _unknown(PROGRAMS[program], words)
    }
    assert lost == set()


def test_every_target_of_make_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {
        word
        for page in PAGES
        for word in re.findall(r"^make ([a-z-]+)", "\n".join(_spans(page)), re.MULTILINE)
    }
    assert {"demo", "up", "test", "lint"} <= named
    assert named - targets == set()


def test_python_is_shown_in_files_alone_which_are_run() -> None:
    for page in PAGES:
        assert "```python" not in page.read_text("utf-8"), page
    tests = (
        "controlplane/test_webhook_examples.py",
        "controlplane/test_follow_examples.py",
        "docker/test_docs_examples.py",
        "games/catalogue.py",
    )
    run = "".join((ROOT / "tests" / test).read_text("utf-8") for test in tests)
    for example in (ROOT / "docs" / "examples").glob("*"):
        assert example.name in run or example.name == "api.sh", example
