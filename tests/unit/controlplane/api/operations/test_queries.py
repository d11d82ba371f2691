import re
from collections import Counter
from typing import Any, cast
from urllib.parse import parse_qsl, quote

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.api.operations.queries import MAX_KEYS, read_query
from controlplane.api.resources.session_bodies import SessionsQuery
from controlplane.domain.errors import InvalidRequestError

SCALARS = ("all", "location", "image", "tag", "host")
_RESTS = {
    "playerCount": ["", "[lt]", "[gt]", "[le]", "[]", "[lt][x]", "[lt", "lt]"],
    "filter": ["", "[]", "[a]", "[b]", "[a][b]", "[[a]]", "[__proto__]", "[a", "[é]"],
    "filterNot": ["", "[a]", "hing[a]"],
    "unknown": ["", "[a]"],
}
_KEYS = st.sampled_from(
    [*SCALARS, "All", *(name + rest for name, rests in _RESTS.items() for rest in rests)]
)
_VALUES = st.sampled_from(
    ["", "true", "FALSE", "1", "0", "yes", "-1", "+7", "007", "1.0", "1e9", " 1", "9" * 4000, "x"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_PAIRS = st.lists(st.tuples(_KEYS, _VALUES), max_size=6)
_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}", re.ASCII)


def _request(pairs: list[tuple[str, str]]) -> web.Request:
    query = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in pairs)
    assert parse_qsl(query, keep_blank_values=True) == pairs
    return make_mocked_request("GET", f"/session?{query}")


def _bad(pairs: list[tuple[str, str]]) -> set[str]:
    """Return the parameters that must be refused, from the rules of the interface alone."""
    times = Counter(key for key, _ in pairs)
    bad = set()
    for key, value in pairs:
        name, bracket, rest = key.partition("[")
        if name == "filterNot":
            bad.add(key)
        elif key in SCALARS:
            flag = value.lower() in {"true", "false", "1", "0"}
            if (key == "all" and not flag) or times[key] > 1:
                bad.add(key)
        elif name in {"filter", "playerCount"}:
            inner = rest.removesuffix("]")
            well_formed = bracket and rest.endswith("]") and inner and not set(inner) & set("[]")
            fits = name == "filter" or (inner in {"lt", "gt"} and _INTEGER.fullmatch(value))
            if not well_formed or times[key] > 1 or not fits:
                bad.add(key)
    return bad


def _read(pairs: list[tuple[str, str]]) -> SessionsQuery | set[str]:
    try:
        return read_query(_request(pairs), SessionsQuery)
    except InvalidRequestError as error:
        return {violation.field for violation in error.violations if violation.description}


@settings(max_examples=300)
@given(_PAIRS)
def test_a_query_is_read_or_every_bad_parameter_is_named(pairs: list[tuple[str, str]]) -> None:
    bad = _bad(pairs)
    read = _read(pairs)
    if bad:
        assert read == bad
        return
    assert isinstance(read, SessionsQuery)
    sent = dict(pairs)
    for name in SCALARS[1:]:
        assert getattr(read, name) == sent.get(name)
    assert read.all == (sent.get("all", "0").lower() in {"true", "1"})
    bounds = cast("Any", read.playerCount)
    for name in ("lt", "gt"):
        text = sent.get(f"playerCount[{name}]")
        assert (bounds and getattr(bounds, name)) == (None if text is None else int(text))
    filters = {key[7:-1]: value for key, value in pairs if key.startswith("filter[")}
    assert (read.filter or {}) == filters


@pytest.mark.parametrize(
    ("keys", "fits"),
    [
        (MAX_KEYS, True),
        (MAX_KEYS + 1, False),
    ],
)
def test_a_deep_object_has_at_most_32_keys(keys: int, fits: bool) -> None:
    read = _read([(f"filter[k{number}]", "v") for number in range(keys)])
    assert isinstance(read, SessionsQuery) if fits else read == {"filter"}
