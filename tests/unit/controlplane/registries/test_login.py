"""Parsing of registries' challenges and token responses."""

import json

import pytest

from controlplane.registries.endpoint import UnusableError
from controlplane.registries.login import (
    MAX_CHALLENGE_CHARACTERS,
    read_challenges,
    read_token,
)


@pytest.mark.parametrize(
    ("headers", "challenges"),
    [
        ([], {}),
        ([""], {}),
        ([" , ,"], {}),
        (['Basic realm="a, b"'], {"basic": {"realm": "a, b"}}),
        (["BEARER Realm=r,SERVICE=s"], {"bearer": {"realm": "r", "service": "s"}}),
        (['Bearer realm = "r" , service\t=\ts'], {"bearer": {"realm": "r", "service": "s"}}),
        (['Bearer realm="",scope=""'], {"bearer": {"realm": "", "scope": ""}}),
        ([r'Bearer realm="a\"b\\c"'], {"bearer": {"realm": 'a"b\\c'}}),
        (['Bearer realm="r",realm="other"'], {"bearer": {"realm": "r"}}),
        (['Bearer realm="r"', "Bearer realm=other"], {"bearer": {"realm": "r"}}),
        (
            ['Basic realm="x"', "Bearer realm=r"],
            {"basic": {"realm": "x"}, "bearer": {"realm": "r"}},
        ),
        (
            ['Basic realm="x", charset="UTF-8", Bearer realm="r",service="s"'],
            {
                "basic": {"realm": "x", "charset": "UTF-8"},
                "bearer": {"realm": "r", "service": "s"},
            },
        ),
        (
            ['Bearer realm="r",service="s",Basic realm="x"'],
            {"bearer": {"realm": "r", "service": "s"}, "basic": {"realm": "x"}},
        ),
        (["Negotiate, Bearer realm=r"], {"negotiate": {}, "bearer": {"realm": "r"}}),
        (['realm="r"'], {}),
    ],
)
def test_parses_challenges(headers: list[str], challenges: dict[str, dict[str, str]]) -> None:
    assert read_challenges(headers) == challenges


def test_challenges_up_to_the_limit_are_parsed() -> None:
    longest = "a" * (MAX_CHALLENGE_CHARACTERS - len("Bearer "))
    assert read_challenges([f"Bearer {longest}"]).keys() == {"bearer", longest}


@pytest.mark.parametrize(
    "headers",
    [
        ["Bearer " + "a" * 4090],
        ['Bearer realm="r"'] * 257,
    ],
    ids=["one", "many"],
)
def test_limits_the_total_length_of_challenges(headers: list[str]) -> None:
    with pytest.raises(UnusableError, match="too long"):
        read_challenges(headers)


@pytest.mark.parametrize(
    ("reported", "seconds"),
    [
        (None, 60.0),
        (0, 60.0),
        (300, 300.0),
        ("300", 300.0),
        (1e9, 3600.0),
        (-5, -5.0),
    ],
)
def test_token_lifetime_is_at_most_an_hour(reported: object, seconds: float) -> None:
    answer = json.dumps({"token": "t", "expires_in": reported})
    assert read_token(answer.encode()) == ("t", seconds)


@pytest.mark.parametrize(
    "token",
    [
        {},
        {"token": 7},
        {"token": ""},
        {"token": "ü"},
        {"token": "a\r\nX-Evil: 1"},
        {"token": "t", "expires_in": "soon"},
        {"token": "t", "expires_in": 10**400},
        {"token": "t", "expires_in": float("inf")},
        {"token": "t", "expires_in": float("nan")},
    ],
)
def test_rejects_a_response_without_a_token(token: dict[str, object]) -> None:
    with pytest.raises(UnusableError, match="no token"):
        read_token(json.dumps(token).encode())
