"""Every command of docs/api.md is run, in its order, and answers as the page shows."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.api.routes import ROUTES
from tests.controlplane.system import System, eventually

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text("utf-8")
LOG = b"listening on 7777\n"


@dataclass(frozen=True)
class Example:
    """A command of the page, and what the page shows as its output."""

    command: str
    shown: str

    @property
    def endpoint(self) -> tuple[str, str]:
        """The method and path of a call by curl."""
        words = shlex.split(self.command)
        url = next(word for word in words if word.startswith("$url"))
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        if "-d" in words and method == "GET":
            method = "POST"
        return method, url.removeprefix("$url").partition("?")[0]


def _examples() -> Iterator[Example]:
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        assert block.startswith("$ ")
        for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = text.splitlines()
            command = lines.pop(0)
            while command.count("'") % 2:  # the body goes on
                command += "\n" + lines.pop(0)
            yield Example(command, "\n".join(lines))


EXAMPLES = list(_examples())
CALLS = [example for example in EXAMPLES if example.command.startswith("curl ")]


def test_every_endpoint_has_an_example() -> None:
    for route in ROUTES:
        path = re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path))
        endpoints = [example.endpoint for example in CALLS]
        assert any(m == route.method and path.fullmatch(p) for m, p in endpoints), route


def test_the_scopes_are_those_of_the_routes() -> None:
    section = PAGE.split("## Authentication\n")[1].split("\n## ")[0]
    shown: dict[str, str] = {}
    for calls, scope in re.findall(r"^\| ([A-Z].*?) \| `([a-z:]+)`", section, re.MULTILINE):
        shown |= dict.fromkeys(calls.split(", "), scope)
    assert shown == {f"{r.method} {r.path}": r.scope for r in ROUTES if r.scope is not None}


async def test_every_command_answers_as_shown(tmp_path: Path) -> None:
    assert EXAMPLES[0].command == 'auth="Authorization: Bearer $token"'
    assert EXAMPLES[1:] == CALLS
    async with System(tmp_path) as system:
        digest = system.registry.push("studio/game", "v1")
        image = f"{system.registry.address}/studio/game@{digest}"
        system.agent.logs = [LOG]
        system.agent.log_follow.set()
        for example in CALLS:
            output = await _run(system, example.command, tmp_path)
            _compare(example, output)
            if example.endpoint == ("POST", "/application/game/tags"):
                await eventually(lambda: system.has(system.agent.name, image))


async def _run(system: System, command: str, folder: Path) -> str:
    token = system.tokens["alice"]
    process = await asyncio.create_subprocess_exec(
        "bash",
        *("-euo", "pipefail", "-c", command),
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


def _compare(example: Example, output: str) -> None:
    """Text is as shown; JSON has the same properties of the same types."""
    if example.shown.startswith("{"):
        assert _shape(json.loads(output)) == _shape(json.loads(example.shown)), output
    else:
        assert output.strip() == example.shown, example.command


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shape(item) for item in value[:1]]
    return type(value).__name__
