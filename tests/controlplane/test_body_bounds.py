"""Bodies that are as large or as bad as they may be: what reading and refusing them costs.

Counted are calls and bytes, which do not depend on the machine.
"""

import sys
from types import FrameType
from typing import Any

import pytest

from controlplane.api.operations.bodies import MAX_BODY, Body
from controlplane.domain.errors import MAX_VIOLATIONS
from tests.controlplane.body_models import MODELS, violations
from tests.controlplane.worst_bodies import WHOLE, worst_bodies
from tests.support.controlplane.system import System, assert_error

MAX_CALLS = 150_000  # Of functions, for one body. 1 MiB of `[1,1,…]` made 4.7 million.
MAX_ANSWER = 512 * 1024  # Bytes of a refusal


@pytest.mark.parametrize("model", MODELS)
def test_reading_a_body_takes_a_bounded_number_of_calls(model: type[Body]) -> None:
    calls = 0

    def count(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    for body in worst_bodies(model):
        calls = 0
        sys.setprofile(count)
        try:
            violations(model, body)
        finally:
            sys.setprofile(None)
        assert calls <= MAX_CALLS, f"{calls} for {body[:200]!r}"


async def test_a_refusal_lists_a_hundred_violations_and_counts_them(system: System) -> None:
    body = {"location": "local", "image": "game", "args": [1] * 500, "env": {"": "x"}, "x": 1}
    refused = await system.call("POST", "/session", json=body)
    assert_error(refused, 422)
    answer = refused.json
    assert answer["message"].startswith("cannot accept the request: env.: a name must not")
    assert [one["field"] for one in answer["violations"][:2]] == ["env.", "args[0]"]
    assert (len(answer["violations"]), answer["violationCount"]) == (MAX_VIOLATIONS, 502)
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


async def test_a_refusal_is_small(system: System) -> None:
    for body in (
        *(
            b'{"location":"local","image":"game","args":' + text[:-50].rstrip(b",") + b"]}"
            for text in WHOLE.values()
            if len(text) > MAX_BODY - 100
        ),
        b'{"' + b"x" * (MAX_BODY - 100) + b'":1}',
        b"{" + b",".join(b'"%s%d":1' % (b"\x7f" * 9000, n) for n in range(99)) + b"}",
    ):
        refused = await system.call("POST", "/session", data=body)
        assert_error(refused, 422)
        assert len(refused.body) <= MAX_ANSWER, body[:100]
