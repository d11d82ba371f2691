"""Bodies that are as large or as bad as they may be: what reading and refusing them costs.

Counted are calls and bytes, which do not depend on the machine.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from controlplane.api.operations.bodies import MAX_BODY, Body
from controlplane.domain.errors import MAX_VIOLATIONS
from tests.controlplane.body_models import MODELS, take
from tests.controlplane.worst_bodies import WHOLE, worst_bodies
from tests.support.controlplane.system import System, assert_error

MAX_CALLS = 150_000
"""Of functions, for one body. 1 MiB of `[1,1,…]` made 4.7 million."""

MAX_ANSWER = 512 * 1024
"""Bytes of a refusal."""


def _calls(model: type[Body], body: bytes) -> int:
    """Count the calls of functions while a body is read."""
    calls = 0

    def count(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        take(model, body)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("model", MODELS)
def test_reading_a_body_takes_a_bounded_number_of_calls(model: type[Body]) -> None:
    for body in worst_bodies(model):
        calls = _calls(model, body)
        assert calls <= MAX_CALLS, f"{calls} for {body[:200]!r}"


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    async with System(tmp_path, agents=0) as running:
        yield running


async def test_a_refusal_lists_a_hundred_violations_and_counts_them(system: System) -> None:
    body = {"location": "local", "image": "game", "args": [1] * 500, "env": {"": "x"}, "x": 1}
    refused = await system.call("POST", "/session", json=body)
    assert_error(refused, 422)
    answer = refused.json
    assert (
        answer["message"] == "cannot accept the request: env.: a name must not be empty or hold ="
    )
    assert [one["field"] for one in answer["violations"][:2]] == ["env.", "args[0]"]
    assert len(answer["violations"]) == MAX_VIOLATIONS
    assert answer["violationCount"] == 502
    few = await system.call("POST", "/session", json=body | {"args": []})
    assert_error(few, 422, "env.", "x")
    assert "violationCount" not in few.json


@pytest.mark.parametrize(("unknown", "violations"), [(98, 98), (99, 1)])
async def test_properties_of_an_object_are_limited(
    system: System, unknown: int, violations: int
) -> None:
    body = {"location": "local", "image": "game"} | {str(n): 1 for n in range(unknown)}
    refused = await system.call("POST", "/session", json=body)
    assert_error(refused, 422)
    assert len(refused.json["violations"]) == violations


async def test_a_refusal_names_the_first_violation(system: System) -> None:
    body = {"location": "local", "image": "game", "ports": [{"container": 1, "host": 0}]}
    refused = await system.call("POST", "/session", json=body)
    assert_error(refused, 422, "ports[0].host")
    assert refused.json["message"] == (
        "cannot accept the request: ports[0].host: input should be greater than or equal to 1"
    )
    query = await system.call("GET", "/session?all=maybe")
    assert query.json["message"] == "cannot accept the request: all: must be true or false"


@pytest.mark.parametrize("name", ["id", "location", "image"])
async def test_an_empty_string_lacks_characters(system: System, name: str) -> None:
    body = {"location": "local", "image": "game"} | {name: ""}
    refused = await system.call("POST", "/session", json=body)
    [violation] = refused.json["violations"]
    assert violation == {
        "field": name,
        "description": "string should have at least 1 character",
    }


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"location":"local","image":"game","args":' + text + b"}", id=name)
        for name, text in WHOLE.items()
        if len(text) > MAX_BODY - 100
        for text in [text[:-50].rstrip(b",") + b"]"]
    ]
    + [
        pytest.param(b'{"' + b"x" * (MAX_BODY - 100) + b'":1}', id="name"),
        pytest.param(
            b"{" + b",".join(b'"%s%d":1' % (b"\x7f" * 9000, n) for n in range(99)) + b"}",
            id="names",
        ),
    ],
)
async def test_a_refusal_is_small(system: System, body: bytes) -> None:
    for method, path in (
        ("POST", "/session"),
        ("PUT", "/session/player/join"),
        ("POST", "/application"),
        ("PUT", "/warm-pool/game/local"),
    ):
        refused = await system.call(method, path, data=body)
        assert_error(refused, 422)
        assert len(refused.body) <= MAX_ANSWER
