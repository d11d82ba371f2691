"""Every command of `tiltyard-agent` is in the operator's manual."""

from collections.abc import Iterator
from pathlib import Path

import click

from agent.cli.main import main

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield " ".join(("tiltyard-agent", *words, name))


def test_every_command_is_documented() -> None:
    text = OPERATIONS.read_text("utf-8")
    assert [command for command in commands(main) if command not in text] == []


def test_every_command_says_what_it_does() -> None:
    for name, command in main.commands.items():
        assert command.help, name
