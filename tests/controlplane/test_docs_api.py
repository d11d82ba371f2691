"""Every command of the pages on the API is run, in its order, and answers as the page shows."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane.api.routes import ROUTES
from controlplane.tokens import OPERATOR_SCOPES
from tests.controlplane.system import System, eventually

DOCS = Path(__file__).resolve().parents[2] / "docs"
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


class Page:
    """A page, the routes that it describes, and its commands in their order."""

    def __init__(self, name: str, *, operators: bool) -> None:
        self.text = (DOCS / name).read_text("utf-8")
        self.routes = [r for r in ROUTES if (r.scope in OPERATOR_SCOPES) == operators]
        self.shown = [r for r in self.routes if r.path != "/docs/{file}"]  # for browsers alone
        self.examples = list(_examples(self.text))
        self.calls = [e for e in self.examples if e.command.startswith("curl ")]


def _examples(page: str) -> Iterator[Example]:
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        assert block.startswith("$ ")
        for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = text.splitlines()
            command = lines.pop(0)
            while command.count("'") % 2:  # the body goes on
                command += "\n" + lines.pop(0)
            yield Example(command, "\n".join(lines))


API = Page("api.md", operators=False)
OPERATOR_API = Page("operator-api.md", operators=True)


@pytest.mark.parametrize("page", [API, OPERATOR_API])
def test_every_endpoint_has_an_example(page: Page) -> None:
    for route in page.shown:
        path = re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path))
        endpoints = [example.endpoint for example in page.calls]
        assert any(m == route.method and path.fullmatch(p) for m, p in endpoints), route


@pytest.mark.parametrize("page", [API, OPERATOR_API])
def test_the_scopes_are_those_of_the_routes(page: Page) -> None:
    section = page.text.split("## Authentication\n")[1].split("\n## ")[0]
    shown: dict[str, str] = {}
    for calls, scope in re.findall(r"^\| ([A-Z].*?) \| `([a-z:]+)`", section, re.MULTILINE):
        shown |= dict.fromkeys(calls.split(", "), scope)
    assert shown == {f"{r.method} {r.path}": r.scope for r in page.routes if r.scope is not None}


@pytest.mark.parametrize("page", [API, OPERATOR_API])
def test_only_calls_are_shown(page: Page) -> None:
    assert page.examples[0].command == 'auth="Authorization: Bearer $token"'
    assert page.examples[1:] == page.calls


def test_every_kind_of_the_audit_is_documented_and_no_other() -> None:
    written = {
        node.value
        for path in (DOCS.parent / "controlplane").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in {"Event", "record"}
        for node in call.args
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value
    }
    table = OPERATOR_API.text.split("| kinds | object |\n")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+\.[a-z_]+)`", table)) == written


async def test_every_command_answers_as_shown(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        digest = system.registry.push("studio/game", "v1")
        image = f"{system.registry.address}/studio/game@{digest}"
        system.agent.logs = [LOG]
        system.agent.log_follow.set()
        for example in API.calls:
            output = await _run(system, example.command, tmp_path, system.tokens["alice"])
            _compare(example, output)
            if example.endpoint == ("POST", "/application/game/tags"):
                await eventually(lambda: system.has(system.agent.name, image))


async def test_every_command_of_operators_answers_as_shown(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="match-1")
        for agent in ("retired", "stolen"):
            await system.add_agent(agent)
        await system.rows("UPDATE agent SET id=name WHERE name='stolen'")
        for example in OPERATOR_API.calls:
            output = await _run(system, example.command, tmp_path, system.operator_token)
            _compare(example, output)
            if example.endpoint == ("POST", "/operator/token"):
                await system.rows("UPDATE token SET id='0123456789abcdef' WHERE name='ci'")


async def _run(system: System, command: str, folder: Path, token: str) -> str:
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
