"""Ways to run operator commands, and to read what they print."""

import asyncio
import re
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from controlplane.cli.main import main
from tests.support.controlplane.commands import finished
from tests.support.controlplane.stub_api import StubApi
from tests.support.controlplane.system import System


class Operated(System):
    """Runs commands as in a shell: settings in the environment, a token file."""

    async def run(self, *arguments: str) -> Result:
        file = self.folder / "token"
        file.write_text(f"{self.operator_token}\n")
        return await run(*arguments, url=self.control_plane.base_url, token_file=file)

    async def ok(self, *arguments: str) -> str:
        """Run a command that succeeds; return its output."""
        result = await self.run(*arguments)
        assert result.exit_code == 0, result.exception
        assert result.stderr == "", result.exception
        return result.stdout

    async def listed(self) -> list[dict[str, str]]:
        """Return the rows of `agent list`, by column."""
        names, *rows = cells(await self.ok("agent", "list"))
        return [dict(zip(names, row, strict=True)) for row in rows]

    async def refused(self, *arguments: str) -> str:
        """Run a command that fails; return its error."""
        result = await self.run(*arguments)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith("cannot ")
        assert isinstance(result.exception, SystemExit)
        return result.stderr


async def run(*arguments: str, url: str, token_file: Path) -> Result:
    """Run a command in a thread, since this event loop serves its requests."""
    environment = {"TILTYARD_URL": url, "TILTYARD_TOKEN_FILE": str(token_file)}
    return await asyncio.to_thread(CliRunner(env=environment).invoke, main, arguments)


def cells(table: str) -> list[list[str]]:
    """Parse a table: columns are aligned and two spaces apart."""
    lines = table.splitlines()
    starts = [match.start() for match in re.finditer(r"(?:^|(?<=  ))\S", lines[0])]
    ends = [*starts[1:], None]
    return [[line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in lines]


class Commands(StubApi):
    """Runs commands against itself."""

    folder: Path

    async def run(self, command: str, *more: str) -> Result:
        arguments = (*command.split(), *more)
        return await run(*arguments, url=self.url, token_file=self.token_file(self.folder))

    async def shown(self, command: str) -> list[str]:
        """Run a command that succeeds; return the lines of its output."""
        result = await self.run(command)
        assert result.exit_code == 0, result.stderr
        return result.stdout.splitlines()

    async def regions(self, *options: str) -> Result:
        return await self.run("region list", *options)


async def shell(url: str, command: str, *, typed: str) -> tuple[int | None, str, str]:
    line = f"{sys.executable} -m controlplane {command}"
    return await finished("sh", "-c", line, typed=typed, env={"TILTYARD_URL": url})
