import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from agent.cli.main import main
from agent.rpc.identity import FILE
from tests.agent.test_tls_server import an_identity

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


HEAVY = ("pydantic", "docker", "requests", "aiohttp", "cryptography", "agent.rpc.service")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["status", "--help"],
        ["status", "--socket", "/nowhere"],
    ],
)
def test_commands_on_the_socket_import_only_what_they_need(words: list[str]) -> None:
    code = (
        "from agent.cli.main import main\ntry:\n    main(sys.argv[2:])\nfinally:\n    report()\n"
    )
    assert imported(code, HEAVY, *words) == []


def test_enrolled_agent_serves_without_cryptography_and_the_sdk(tmp_path: Path) -> None:
    an_identity().save(tmp_path / FILE)
    code = (
        "import agent.cli.main, agent.cli.serve, agent.rpc.identity, pathlib\n"
        "assert agent.rpc.identity.Identity.read(pathlib.Path(sys.argv[2])).uri\n"
        "report()\n"
    )
    watched = ("aiohttp", "cryptography", "docker", "requests")
    assert imported(code, watched, str(tmp_path / FILE)) == ["aiohttp"]


def imported(code: str, watched: Sequence[str], *words: str) -> list[str]:
    """Run `code` in a process; return which of the watched modules it had imported at `report`."""
    report = (
        "import sys\n"
        "def report():\n"
        "    print('imported:', *sys.modules.keys() & set(sys.argv[1].split()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", report + code, " ".join(watched), *words],
        cwd=OPERATIONS.parents[1],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    label, *names = done.stdout.splitlines()[-1].split()
    assert label == "imported:", done
    return names
