"""Parsing of registries' challenges and token responses."""

import json

import pytest

from controlplane.registries.endpoint import UnusableError
from controlplane.registries.login import read_challenges, read_token


def test_parses_challenges() -> None:
    parsed = [
        ([" , ,"], {}),
        (['Basic realm="a, b"'], {"basic": {"realm": "a, b"}}),
        (["BEARER Realm=r,SERVICE=s"], {"bearer": {"realm": "r", "service": "s"}}),
        (['Bearer realm = "r" , service\t=\ts'], {"bearer": {"realm": "r", "service": "s"}}),
        ([r'Bearer realm="a\"b\\c"'], {"bearer": {"realm": 'a"b\\c'}}),
        (['Bearer realm="r",realm="other"'], {"bearer": {"realm": "r"}}),
        (['Bearer realm="r"', "Bearer realm=other"], {"bearer": {"realm": "r"}}),
        (
            ['Bearer realm="r",service="s",Basic realm="x"'],
            {"bearer": {"realm": "r", "service": "s"}, "basic": {"realm": "x"}},
        ),
        (["Negotiate, Bearer realm=r"], {"negotiate": {}, "bearer": {"realm": "r"}}),
        (['realm="r"'], {}),
    ]
    assert [(headers, read_challenges(headers)) for headers, _ in parsed] == parsed


def test_limits_the_total_length_of_challenges() -> None:
    with pytest.raises(UnusableError, match="too long"):
        read_challenges(['Bearer realm="r"'] * 257)


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
        {"token": "a\r\nX-Evil: 1"},
        *({"token": "t", "expires_in": never} for never in ("soon", 10**400, float("nan"))),
    ],
)
def test_rejects_a_response_without_a_token(token: dict[str, object]) -> None:
    with pytest.raises(UnusableError, match="no token"):
        read_token(json.dumps(token).encode())
