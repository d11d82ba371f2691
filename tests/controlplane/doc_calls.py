"""The commands of the pages on the API, which call it by curl."""

import asyncio
import json
import shlex
from pathlib import Path

from tests.support.controlplane.system import System


class Call:
    """A command as the request that curl makes of it."""

    def __init__(self, command: str) -> None:
        words = shlex.split(command)
        url = next(word for word in words if word.startswith("$url"))
        self.path = url.removeprefix("$url").partition("?")[0]
        self.body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
        self.method = "GET" if self.body is None else "POST"
        if "-X" in words:
            self.method = words[words.index("-X") + 1]

    @property
    def endpoint(self) -> tuple[str, str]:
        """The method and path, without the query."""
        return self.method, self.path


async def run(system: System, command: str, folder: Path, token: str) -> str:
    """Run a command with the variables that the pages speak of; what it printed."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", command),
        stdout=asyncio.subprocess.PIPE,
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "url": system.control_plane.base_url,
            "auth": f"Authorization: Bearer {token}",
        },
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, command
    return output.decode()
