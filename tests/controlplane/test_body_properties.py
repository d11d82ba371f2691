"""Bodies: what does not fit is refused with its path, and at a bounded cost.

Schemathesis tries the schemas.
"""

import copy
import json
import re
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.api.operations.bodies import MAX_BODY, Body, parse_body
from controlplane.domain.errors import MAX_VIOLATIONS
from tests.controlplane.body_models import EXAMPLES, MODELS, violations
from tests.controlplane.worst_bodies import WHOLE, worst_bodies
from tests.support.controlplane.system import System, assert_error

BY_NAME = {model.__name__: model for model in MODELS}
APPLICATION_BODIES = ("ApplicationBody", "ApplicationEditBody")
# What a schema does not say, or says of a part: the model, the path and what is refused there.
RULES: list[tuple[str, tuple[str | int, ...], Any]] = [
    ("StartBody", ("image",), None),
    ("StartBody", ("restart",), "true"),
    ("StartBody", ("args", 0), ""),
    ("StartBody", ("ports", 0, "host"), 65536),
    ("StartBody", ("ports", 0, "x"), None),
    *(("StartBody", (name,), "x") for name in ("x", " ", "Id", "a.b", "[0]", "\u202e")),
    *(("StartBody", ("id",), text) for text in ("", "a\nb", "\x7f", "\x85", "x" * 257)),
    *(("StartBody", ("ttl",), text) for text in ("", "1", "1s", "-1m", "1m1h", "8761h", "1H")),
    *(("StartBody", ("ttl",), text) for text in ("1m\n", "\u0661m", " 1m", "1.5h", "1h 1m")),
    *(
        (model, ("env", name), "x")
        for model in ("StartBody", "WarmPoolBody")
        for name in ("", "a=b", "TILTYARD_HOST", "TILTYARD_PORT_UDP_7777")
    ),
    ("JoinBody", ("session",), "a\tb"),
    ("LeaveBody", ("session",), "\x1b"),
    *(("ApplicationBody", ("name",), text) for text in ("", "a b", "a/b", "ä", "a\n", "x" * 129)),
    *((model, ("limits", "gpu"), 0.5) for model in APPLICATION_BODIES),
    *((model, ("reservation",), {"cpu": 2, "ram": 256}) for model in APPLICATION_BODIES),
    *((model, ("reservation", "disk"), 1) for model in APPLICATION_BODIES),
    *((model, ("ports", 0, "tls"), True) for model in APPLICATION_BODIES),  # it is udp
    *(
        (
            model,
            ("ports",),
            [{"requested": 1, "protocol": "tcp", "tls": tls} for tls in (True, False)],
        )
        for model in APPLICATION_BODIES
    ),
    *(("RegistryBody", ("username",), text) for text in ("a:b", "a\nb", "\x7f")),
    *(("RegistryBody", ("password",), text) for text in ("a\nb", "\x85", "\x1b")),
    *(("RegistryBody", ("authHosts", 0), text) for text in ("", "https://a.example", "a/b")),
    *(("RegistryBody", ("address",), text) for text in ("https://r.example", "r.example/studio")),
    *(
        ("RegistryBody", ("aliases",), names)
        for names in (["a.b", "A.b"], ["Registry.Invalid:5000"])
    ),
    *(("RegistryBody", ("aliases", 0), text) for text in ("b/c", "d e")),
    *(("DrainBody", ("deadline",), text) for text in ("", "soon", "2", "-1h", "9000h", 2)),
    ("AccountEditBody", ("quota",), None),
    ("AccountEditBody", ("quota", "cpu"), -1),
    *(("AccountBody", ("name",), text) for text in ("", "..", "a b", "a\n")),
    ("NodePoolBody", ("strategy",), "full"),
    ("TokenBody", ("name",), "a\x01b"),
    ("TokenBody", ("scopes", 0), "session:own"),
    *(("TokenBody", ("expires_after",), text) for text in ("", "1d", "8760h1m", "99999999h")),
]
ANY_TEXT = st.text(st.characters(categories=None) | st.sampled_from("\0\ud800\udfff\n\x7f\ufeff"))


@pytest.mark.parametrize("model", MODELS)
def test_examples_are_whole_and_valid(model: type[Body]) -> None:
    assert violations(model, EXAMPLES[model]) == []
    assert set(EXAMPLES[model]) == set(model.model_fields)


@pytest.mark.parametrize("model", MODELS)
def test_an_unknown_property_is_named(model: type[Body]) -> None:
    assert violations(model, EXAMPLES[model] | {"x": 1}) == ["x"]


@pytest.mark.parametrize("model", MODELS)
def test_missing_properties_are_named(model: type[Body]) -> None:
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    assert violations(model, {}) == required


@pytest.mark.parametrize(("name", "path", "value"), RULES)
def test_what_does_not_fit_is_named(name: str, path: tuple[str | int, ...], value: Any) -> None:
    body = place = copy.deepcopy(EXAMPLES[BY_NAME[name]])
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    assert violations(BY_NAME[name], body) == [field.removeprefix(".")]


@pytest.mark.parametrize(
    ("model", "field", "least", "most"),
    [
        ("ApplicationBody", "tagKeep", 1, 100),
        ("WarmPoolBody", "size", 0, 1000),
    ],
)
def test_numbers_are_accepted_within_their_bounds(
    model: str, field: str, least: int, most: int
) -> None:
    body = EXAMPLES[BY_NAME[model]]
    for value in (least, most):
        assert violations(BY_NAME[model], body | {field: value}) == []
    for value in (least - 1, most + 1):
        assert violations(BY_NAME[model], body | {field: value}) == [field]


@pytest.mark.parametrize("model", ["StartBody", "WarmPoolBody"])
@pytest.mark.parametrize("name", ["TILTYARD_MODE", "TILTYARD_HOSTS", "tiltyard_host"])
def test_variables_that_only_resemble_reserved_ones_are_accepted(model: str, name: str) -> None:
    body = EXAMPLES[BY_NAME[model]] | {"env": {name: "x"}}
    assert violations(BY_NAME[model], body) == []


@given(ANY_TEXT, st.booleans())
def test_text_is_kept_as_it_was_or_refused(text: str, ascii_only: bool) -> None:
    model = BY_NAME["StartBody"]
    labels = {"k": text, f"k{text}": "x"}
    sent = json.dumps(EXAMPLES[model] | {"labels": labels}, ensure_ascii=ascii_only)
    body = sent.encode("utf-8", "surrogatepass")
    if re.search("[\x00\ud800-\udfff]", text):
        assert violations(model, body) == ["body"]
    else:
        assert parse_body(body, model).model_dump()["labels"] == labels


# Counted are calls and bytes, which do not depend on the machine.
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
    answer = assert_error(await system.call("POST", "/session", json=body), 422).json
    assert answer["message"].startswith("cannot accept the request: env.: a name must not")
    assert answer["violations"][0]["field"] == "env."
    assert answer["violations"][1]["field"] == "args[0]"
    assert len(answer["violations"]) == MAX_VIOLATIONS
    assert answer["violationCount"] == 502
    few = await system.call("POST", "/session", json=body | {"args": []})
    assert_error(few, 422, "env.", "x")
    assert "violationCount" not in few.json


async def test_a_refusal_describes_its_first_violation(system: System) -> None:
    pins = [{"container": 1, "host": 0}]
    refused = assert_error(await system.start(ports=pins), 422, "ports[0].host")
    assert refused.json["message"] == (
        "cannot accept the request: ports[0].host: input should be greater than or equal to 1"
    )
    refused = assert_error(await system.call("GET", "/session?all=maybe"), 422, "all")
    assert refused.json["message"] == "cannot accept the request: all: must be true or false"


@pytest.mark.parametrize(
    ("unknown", "violations"),
    [
        (98, 98),
        (99, 1),
    ],
)
async def test_properties_of_an_object_are_limited(
    system: System, unknown: int, violations: int
) -> None:
    body = {"location": "local", "image": "game"} | {str(n): 1 for n in range(unknown)}
    refused = assert_error(await system.call("POST", "/session", json=body), 422)
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
        refused = assert_error(await system.call("POST", "/session", data=body), 422)
        assert len(refused.body) <= MAX_ANSWER, body[:100]
