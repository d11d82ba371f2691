import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

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


def test_every_command_has_help() -> None:
    for name, command in main.commands.items():
        assert command.help, name


HEAVY = ("pydantic", "docker", "requests", "aiohttp", "cryptography", "agent.rpc.service")


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["status", "--help"], ["status", "--socket", "/nowhere"]]
)
def test_commands_on_the_socket_import_only_what_they_need(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from agent.cli.main import main\n"
        "try:\n"
        "    main(sys.argv[2:])\n"
        "finally:\n"
        "    print('imported:', *sys.modules.keys() & set(sys.argv[1].split()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, " ".join(HEAVY), *words],
        cwd=OPERATIONS.parents[1],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "imported:", done
