"""Every command of the pages on the API is run, in its order, and answers as the page shows."""

import ast
import re
from pathlib import Path

import pytest

from controlplane.api.routes import ROUTES
from controlplane.domain.tokens import OPERATOR_SCOPES
from tests.controlplane.doc_calls import Call, run
from tests.support.controlplane.system import System, eventually
from tests.support.doc_examples import examples

DOCS = Path(__file__).resolve().parents[2] / "docs"
LOG = b"listening on 7777\n"


class Page:
    """A page, the routes that it describes, and its commands in their order."""

    def __init__(self, name: str, *, operators: bool) -> None:
        self.text = (DOCS / name).read_text("utf-8")
        self.routes = [r for r in ROUTES if (r.scope in OPERATOR_SCOPES) == operators]
        self.shown = [r for r in self.routes if r.path != "/docs/{file}"]  # for browsers alone
        self.examples = list(examples(self.text))
        self.calls = [e for e in self.examples if e.command.startswith("curl ")]


API = Page("api.md", operators=False)
OPERATOR_API = Page("operator-api.md", operators=True)


@pytest.mark.parametrize("page", [API, OPERATOR_API])
def test_every_endpoint_has_an_example(page: Page) -> None:
    for route in page.shown:
        path = re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path))
        endpoints = [Call(example.command).endpoint for example in page.calls]
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
        if isinstance(call, ast.Call)
        and "record_event" in map(ast.unparse, (call.func, *call.args[:1]))
        for node in call.args
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value
    }
    written |= {"region.removed", "node_pool.removed", "registry.removed"}  # by one function
    table = OPERATOR_API.text.split("| kinds | object |\n")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+\.[a-z_]+)`", table)) == written


async def test_every_command_answers_as_shown(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        digest = system.registry.push("studio/game", "v1")
        image = f"{system.registry.address}/studio/game@{digest}"
        system.agent.logs = [LOG]
        system.agent.log_follow.set()
        for example in API.calls:
            output = await run(system, example.command, tmp_path, system.tokens["alice"])
            example.check(output)
            if Call(example.command).endpoint == ("POST", "/application/game/tags"):
                await eventually(lambda: system.has(system.agent.name, image))


async def test_every_command_of_operators_answers_as_shown(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="match-1")
        for agent in ("retired", "stolen"):
            await system.add_agent(agent)
        await system.rows("UPDATE agent SET id=name WHERE name='stolen'")
        link = system.link()
        link.latency.note("192.0.2.1", 4.21)
        for example in OPERATOR_API.calls:
            output = await run(system, example.command, tmp_path, system.operator_token)
            example.check(output)
            if Call(example.command).endpoint == ("POST", "/operator/token"):
                await system.rows("UPDATE token SET id='0123456789abcdef' WHERE name='ci'")
