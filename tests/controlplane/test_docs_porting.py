"""The page for who moves a game here: its calls are those of the API, and answer as shown."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from controlplane.api.openapi import openapi_document
from controlplane.api.routes import ROUTES
from tests.controlplane.doc_calls import Call, run
from tests.support.controlplane.system import System, eventually
from tests.support.doc_examples import ROOT, Example, examples

DOCUMENT = openapi_document(ROUTES)
EXAMPLES = list(examples((ROOT / "docs" / "porting.md").read_text("utf-8")))
CALLS = [example for example in EXAMPLES if example.command.startswith("curl ")]


def _operation(call: Call) -> dict[str, Any]:
    """What the document says of a call; fails when it says nothing."""
    for path, methods in DOCUMENT["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), call.path):
            found: dict[str, Any] | None = methods.get(call.method.lower())
            if found is not None:
                return found
    raise AssertionError(f"{call.method} {call.path} is no call of the API")


def _complaints(content: dict[str, Any], value: object) -> list[str]:
    schema = {**content["application/json"]["schema"], "components": DOCUMENT["components"]}
    found = jsonschema_rs.Draft202012Validator(schema).iter_errors(value)
    return [f"{error.instance_path}: {error.message}" for error in found]


@pytest.mark.parametrize("example", CALLS, ids=lambda example: example.command[:60])
def test_every_call_is_one_of_the_document(example: Example) -> None:
    call = Call(example.command)
    operation = _operation(call)
    assert ("requestBody" in operation) == (call.body is not None)
    if call.body is not None:
        assert _complaints(operation["requestBody"]["content"], call.body) == []
    if example.shown.startswith("{"):
        good = next(status for status in operation["responses"] if status.startswith("2"))
        answer = json.loads(example.shown)
        assert _complaints(operation["responses"][good]["content"], answer) == []
    else:
        assert example.shown in operation["responses"]


async def test_every_command_answers_as_shown(tmp_path: Path) -> None:
    assert EXAMPLES[0].command == 'auth="Authorization: Bearer $token"'
    assert EXAMPLES[1:] == CALLS
    async with System(tmp_path) as system:
        digest = system.registry.push("studio/game", "v1")
        image = f"{system.registry.address}/studio/game@{digest}"
        for example in CALLS:
            token = system.tokens["alice"]
            example.check(await run(system, example.command, tmp_path, token))
            if Call(example.command).path == "/application/game/tags":
                await eventually(lambda: system.has(system.agent.name, image))
