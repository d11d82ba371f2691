"""Every command of the pages on the API is run, in its order, and answers as the page shows."""

import re
import shlex

import pytest

from controlplane.api.routes import ROUTES
from controlplane.domain.access.tokens import OPERATOR_SCOPES
from controlplane.domain.events.kinds import KINDS
from tests.support.controlplane.commands import finished
from tests.support.controlplane.system import System, eventually
from tests.support.doc_examples import ROOT, examples

LOG = b"listening on 7777\n"


def endpoint(command: str) -> tuple[str, str]:
    """Return the method and the path, without its query, that curl calls."""
    words = shlex.split(command)
    url = next(word for word in words if word.startswith("$url"))
    method = "POST" if "-d" in words else "GET"
    if "-X" in words:
        method = words[words.index("-X") + 1]
    return method, url.removeprefix("$url").partition("?")[0]


class Page:
    """A page, the routes that it describes, and its commands in their order."""

    def __init__(self, name: str, *, operators: bool) -> None:
        self.text = (ROOT / "docs" / name).read_text("utf-8")
        self.routes = [r for r in ROUTES if (r.scope in OPERATOR_SCOPES) == operators]
        self.shown = [r for r in self.routes if r.path != "/docs/{file}"]  # for browsers alone
        self.examples = list(examples(self.text))
        self.calls = [e for e in self.examples if e.command.startswith("curl ")]


API = Page("api.md", operators=False)
OPERATOR_API = Page("operator-api.md", operators=True)
PORTING = Page("porting.md", operators=False)


@pytest.mark.parametrize("page", [API, OPERATOR_API])
def test_every_endpoint_has_an_example(page: Page) -> None:
    for route in page.shown:
        path = re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path))
        endpoints = [endpoint(example.command) for example in page.calls]
        assert any(m == route.method and path.fullmatch(p) for m, p in endpoints), route


@pytest.mark.parametrize("page", [API, OPERATOR_API])
def test_every_endpoint_is_listed_with_its_scope(page: Page) -> None:
    section = page.text.split("## Authentication\n")[1].split("\n## ")[0]
    shown: dict[str, str] = {}
    for calls, scope in re.findall(r"^\| ([A-Z].*?) \| `([a-z:]+)`", section, re.MULTILINE):
        shown |= dict.fromkeys(calls.split(", "), scope)
    assert shown == {f"{r.method} {r.path}": r.scope for r in page.routes if r.scope is not None}


@pytest.mark.parametrize("page", [API, OPERATOR_API, PORTING])
def test_only_calls_are_shown(page: Page) -> None:
    assert page.examples[0].command == 'auth="Authorization: Bearer $token"'
    assert page.examples[1:] == page.calls


def test_every_kind_of_the_audit_is_documented_and_no_other() -> None:
    table = OPERATOR_API.text.split("| kinds | object |\n")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+\.[a-z_]+)`", table)) == set(KINDS)


async def _run(system: System, command: str, token: str) -> str:
    """Run a command with only the variables that the pages use; return its output."""
    url = system.control_plane.base_url
    auth = f"Authorization: Bearer {token}"
    variables = ("env", "-i", "PATH=/usr/bin:/bin", f"url={url}", f"auth={auth}")
    line = ("bash", "-euo", "pipefail", "-c", command)
    status, output, errors = await finished(*variables, *line, cwd=system.folder)
    assert status == 0, f"{command}\n{errors}"
    return output


@pytest.mark.parametrize("page", [API, PORTING])
async def test_every_command_answers_as_shown(system: System, page: Page) -> None:
    digest = system.registry.push("studio/game", "v1")
    image = f"{system.registry.address}/studio/game@{digest}"
    system.agent.logs = [LOG]
    system.agent.log.ended.set()
    for example in page.calls:
        example.check(await _run(system, example.command, system.tokens["alice"]))
        if endpoint(example.command) == ("POST", "/application/game/tags"):
            await eventually(lambda: system.has(system.agent.name, image))


async def test_every_command_of_operators_answers_as_shown(system: System) -> None:
    await system.make_application()
    await system.start(id="match-1")
    webhook = {"url": "https://hooks.example.com/", "kinds": ["webhook.gap"]}
    (await system.call("POST", "/webhook", json=webhook)).expect(201)
    for agent in ("retired", "stolen"):
        await system.add_agent(agent)
    await system.rows("UPDATE agent SET id=name WHERE name='stolen'")
    system.link().state.latency.note("192.0.2.1", 0.00421)
    system.agent.change_host(free_image_bytes=2**30)
    await system.has_reported(system.agent.name, free_image_bytes=2**30)
    for example in OPERATOR_API.calls:
        example.check(await _run(system, example.command, system.operator_token))
        if endpoint(example.command) == ("POST", "/operator/token"):
            await system.rows("UPDATE token SET id='0123456789abcdef' WHERE name='ci'")
