"""Bodies: whatever is sent fits its model or is refused with the paths of what does not."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controlplane.api.operations.bodies import Body
from tests.controlplane.body_models import (
    EXAMPLES,
    MODELS,
    Path,
    Place,
    Refused,
    at,
    breakers,
    field_of,
    give,
    holder,
    is_closed,
    not_null,
    objects,
    places,
    put,
    resolved,
    take,
    without,
)
from tests.support.strict_json import NotJsonError, read

# What a schema does not say: the model, the path and what is refused there.
RULES: list[tuple[str, Path, Any]] = [
    *(("StartBody", ("id",), text) for text in ("a\nb", "\x7f", "\x85")),
    *(("StartBody", ("ttl",), text) for text in ("", "1", "1s", "-1m", "1m1h", "8761h", "1H")),
    *(("StartBody", ("ttl",), text) for text in ("1m\n", "\u0661m", " 1m", "1.5h", "1h 1m")),
    ("JoinBody", ("session",), "a\tb"),
    ("LeaveBody", ("session",), "\x1b"),
    *(("ApplicationBody", ("name",), text) for text in ("", "a b", "a/b", "ä", "a\n", "x" * 129)),
    *(
        (model, (part, "gpu"), 0.5)
        for model in ("ApplicationBody", "ApplicationEditBody")
        for part in ("limits", "reservation")
    ),
    *(
        (model, ("reservation",), {"cpu": 2, "ram": 256, "gpu": 0})
        for model in ("ApplicationBody", "ApplicationEditBody")
    ),
    *(
        (model, ("ports", 0, "tls"), True)  # its protocol is udp
        for model in ("ApplicationBody", "ApplicationEditBody")
    ),
    *(
        (
            model,
            ("ports",),
            [{"requested": 1, "protocol": "tcp", "tls": tls} for tls in (True, False)],
        )
        for model in ("ApplicationBody", "ApplicationEditBody")
    ),
    *(("RegistryBody", ("username",), text) for text in ("a:b", "a\nb", "\x7f")),
    *(("RegistryBody", ("password",), text) for text in ("a\nb", "\x85", "\x1b")),
    *(("RegistryBody", ("authHosts", 0), text) for text in ("", "https://a.example", "a/b")),
    *(("RegistryBody", ("address",), text) for text in ("https://r.example", "r.example/studio")),
    *(
        ("RegistryBody", ("aliases",), names)
        for names in (["a.b", "A.b"], ["Registry.Invalid:5000"])
    ),
    *(("AccountBody", ("name",), text) for text in ("", "..", "a b", "a\n")),
    ("NodePoolBody", ("strategy",), "full"),
    ("TokenBody", ("name",), "a\x01b"),
    ("TokenBody", ("scopes", 0), "session:own"),
    *(("TokenBody", ("expires_after",), text) for text in ("", "1d", "99999999h")),
]
ENV_NAMES = ("", "a=b", "TILTYARD_HOST", "TILTYARD_PORT_UDP_7777")
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200)
ANY_TEXT = st.text(st.characters(categories=None) | st.sampled_from("\0\ud800\udfff\n\x7f\ufeff"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.just("1h"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


BY_NAME = {model.__name__: model for model in MODELS}


def test_the_bodies_of_the_api_are_all_here() -> None:
    named = {"StartBody", "ApplicationBody", "ApplicationEditBody", "TagBody", "TokenBody"}
    assert named | {"JoinBody", "LeaveBody"} <= set(BY_NAME)
    assert {name for name, _, _ in RULES} <= set(BY_NAME)


@pytest.mark.parametrize("model", MODELS)
def test_the_examples_are_valid_and_leave_no_property_out(model: type[Body]) -> None:
    assert isinstance(give(model, EXAMPLES[model]), model)
    whole = Place((), resolved(model), required=True)
    for place in (whole, *places(resolved(model), EXAMPLES[model])):
        shown = at(EXAMPLES[model], place.path)
        if isinstance(shown, dict):
            known = set(not_null(place.schema).get("properties", shown))
            assert set(shown) == known, f"{model.__name__} {place.field}"


@pytest.mark.parametrize("model", MODELS)
def test_one_broken_field_is_the_one_that_is_named(model: type[Body]) -> None:
    body = EXAMPLES[model]
    for place in places(resolved(model), body):
        for value in breakers(place, at(body, place.path)):
            found = give(model, put(body, place.path, value))
            assert found == Refused((place.field,)), f"{value!r:.60}"


@pytest.mark.parametrize(("name", "path", "value"), RULES)
def test_what_no_schema_says_is_named_as_well(name: str, path: Path, value: Any) -> None:
    assert at(EXAMPLES[BY_NAME[name]], path) is not None
    assert give(BY_NAME[name], put(EXAMPLES[BY_NAME[name]], path, value)) == Refused(
        (field_of(path),)
    )


@pytest.mark.parametrize("name", ENV_NAMES)
def test_names_of_variables(name: str) -> None:
    for model in (BY_NAME["StartBody"], BY_NAME["WarmPoolBody"]):
        found = give(model, EXAMPLES[model] | {"env": {name: "x", "GOOD": "x"}})
        assert found == Refused((f"env.{name}",))


@pytest.mark.parametrize("model", MODELS)
def test_a_property_that_is_missing(model: type[Body]) -> None:
    """A required one is named; an optional one may be left out, and null is as if it were."""
    body = EXAMPLES[model]
    for place in places(resolved(model), body):
        if isinstance(place.path[-1], int) or "properties" not in holder(model, place.path):
            continue
        absent = give(model, without(body, place.path))
        null = give(model, put(body, place.path, None))
        if place.required:
            assert absent == null == Refused((place.field,))
        else:
            assert absent == null
            # Another field may need it: a token without an account has an operator's scopes.
            assert isinstance(absent, Body) or place.field not in absent.fields


@pytest.mark.parametrize("model", MODELS)
def test_unknown_properties_are_refused_at_every_level(model: type[Body]) -> None:
    body = EXAMPLES[model]
    for path in (path for path in objects(body) if is_closed(model, path)):
        for name in ("x", " ", "Id", "__proto__", "a.b", "[0]", "\n", "\u202e", "x" * 200):
            value: Any
            for value in (None, {}, "x"):
                found = give(model, put(body, (*path, name), value))
                assert found == Refused((field_of((*path, name)),)), name


@pytest.mark.parametrize("model", MODELS)
@given(st.data())
def test_any_json_fits_or_is_refused(model: type[Body], data: st.DataObject) -> None:
    """Also in a place of a body that is valid otherwise. What fits is read again as the same."""
    body = EXAMPLES[model]
    paths = [(), *(place.path for place in places(resolved(model), body))]
    sent = json.dumps(put(body, data.draw(st.sampled_from(paths)), data.draw(JSON))).encode()
    found = take(model, sent)
    try:
        read(sent)
    except NotJsonError:
        assert found == Refused(("body",))
    if isinstance(found, Body):
        assert take(model, found.model_dump_json().encode()) == found


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"[" * 60_000)
@example(b'{"a": 1, "a": 1}')
def test_any_bytes_are_refused(body: bytes) -> None:
    assert isinstance(take(BY_NAME["StartBody"], body), Refused)


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("name", ["StartBody", "ApplicationBody", "RegistryBody"])
@given(st.data())
def test_text_is_kept_as_it_was_or_refused(
    name: str, ascii_only: bool, data: st.DataObject
) -> None:
    model = BY_NAME[name]
    strings = [
        place.path
        for place in places(resolved(model), EXAMPLES[model])
        if not_null(place.schema)["type"] == "string"
    ]
    path, text = data.draw(st.sampled_from(strings)), data.draw(ANY_TEXT)
    body = json.dumps(put(EXAMPLES[model], path, text), ensure_ascii=ascii_only)
    found = take(model, body.encode("utf-8", "surrogatepass"))
    if UNSTORABLE.search(text):
        assert found == Refused(("body",))
    elif isinstance(found, Body):
        assert at(found.model_dump(), path) == text
    else:
        assert found == Refused((field_of(path),))


@given(st.dictionaries(TEXT, TEXT))
def test_labels_take_any_text(labels: dict[str, str]) -> None:
    model = BY_NAME["StartBody"]
    found = give(model, EXAMPLES[model] | {"labels": labels})
    assert isinstance(found, model)
    assert found.model_dump()["labels"] == labels
