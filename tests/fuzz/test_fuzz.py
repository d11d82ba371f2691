"""Bad requests by the thousand, and that the fuzzer sees what it is there to see."""

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.api.routes import ROUTES
from controlplane.http import edge
from tests.fuzz import runner
from tests.fuzz.checker import WrongAnswerError, check
from tests.fuzz.draft import HOLDERS, resolve
from tests.fuzz.generator import Sent, make
from tests.fuzz.templates import TEMPLATES
from tests.support.controlplane.raw_http import RawAnswer
from tests.support.strict_json import NotJsonError, read

SEED = 20261122
TOKENS = {name: f"ty_of_{name}" for name in HOLDERS}
SENT = Sent(
    number=1,
    data=b"GET /session/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ty_of_alice\r\n\r\n",
    method="GET",
    target=b"/session/x",
    allowed=frozenset({200, 404}),
    alone=False,
    route="GET /session/{id}",
    done=(),
)


def test_every_route_has_a_template() -> None:
    routes = {f"{route.method} {route.path}" for route in ROUTES}
    known = {f"{method} {path}" for method, path in TEMPLATES}
    assert routes - known == set(), "give these a line in tests/fuzz/templates.py"
    assert known - routes == set(), "these are no routes any more"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_ten_thousand_bad_requests(tmp_path: Path) -> None:
    report = await runner.run(tmp_path, SEED, range(10_000))
    assert not report.failures, "\n".join(report.failures)
    for route in ROUTES:
        found = set(report.statuses[f"{route.method} {route.path}"])
        template = TEMPLATES[route.method, route.path]
        wanted = {400, 404, 405} | (set() if template.unreached else {template.status})
        wanted |= {401} if route.scope is not None else set()
        wanted |= {422} & route.errors
        assert wanted <= found, f"{route.method} {route.path} was not reached as deep as meant"
    every: set[int] = set().union(*report.statuses.values())
    assert {200, 201, 204, 400, 401, 403, 404, 405, 409, 413, 420, 422} <= every


async def test_some_bad_requests(tmp_path: Path) -> None:
    report = await runner.run(tmp_path, SEED, range(300))
    assert not report.failures, "\n".join(report.failures)


def test_a_request_depends_on_seed_and_number_alone() -> None:
    there = [make(SEED, number) for number in range(200)]
    back = [make(SEED, number) for number in reversed(range(200))]
    assert there == back[::-1]
    assert there != [make(SEED + 1, number) for number in range(200)]
    assert len({sent.data for sent in there}) > 190


async def test_a_failure_says_how_to_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "make", lambda _, number: replace(SENT, number=number))
    report = await runner.run(tmp_path, 5, [7])
    (failure,) = report.failures
    assert "request 7 of seed 5 (GET /session/{id}" in failure
    assert "401, allowed are [200, 404]" in failure
    assert repr(SENT.data) in failure
    assert "make fuzz SEED=5 ONLY=7" in failure


async def test_what_is_logged_as_an_error_or_left_behind_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []

    def refuse(*_: Any) -> Any:
        left.append(asyncio.create_task(asyncio.Event().wait(), name="left"))
        raise RuntimeError("as meant")

    monkeypatch.setattr(runner, "eventually", _soon)
    monkeypatch.setattr(edge, "_refuse", refuse)
    target, head = b"/healthz", b"GET /healthz HTTP/3.0\r\nHost: a\r\n\r\n"
    bad = replace(SENT, data=head, target=target, allowed=frozenset({400}), alone=True)
    monkeypatch.setattr(runner, "make", lambda *_: bad)
    report = await runner.run(tmp_path, 5, [7])
    for task in left:
        task.cancel()
    assert left
    text = "\n".join(report.failures)
    assert "something is left behind" in text
    assert "left the task" in text
    assert "RuntimeError: as meant" in text


async def _soon(condition: Callable[[], bool]) -> None:
    """Fail at once: a wait that is known to be in vain need not be as long as others."""
    if not condition():
        raise TimeoutError


def _error(status: int = 404, code: str = "RESOURCE_NOT_FOUND", **changes: Any) -> RawAnswer:
    identifier = str(uuid.uuid4())
    body = {
        "statusCode": status,
        "code": code,
        "message": "not found",
        "details": "not found",
        "path": "/session/x",
        "timestamp": "2026-11-21T00:00:00.000Z",
        "identifier": identifier,
    }
    headers = {
        "content-type": "application/json; charset=utf-8",
        "x-request-id": identifier,
        "x-content-type-options": "nosniff",
    }
    return RawAnswer("HTTP/1.1", status, headers, json.dumps(body | changes).encode())


def _success(body: bytes = b"{}", status: int = 200) -> RawAnswer:
    return replace(_error(), status=status, body=body)


def _without(name: str) -> RawAnswer:
    answer = _error()
    body = answer.json
    del body[name]
    return replace(answer, body=json.dumps(body).encode())


def test_right_answers_pass() -> None:
    check(SENT, SENT.data, _error(), TOKENS)
    check(SENT, SENT.data, _success(), TOKENS)
    check(replace(SENT, target=None), b"GET /session", None, TOKENS)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        _error(500, "INTERNAL_ERROR"),
        _error(422, "INVALID_REQUEST"),
        _error(code="CONFLICT"),
        _error(statusCode=400),
        _error(statusCode="404"),
        _error(message=""),
        _error(details=None),
        _error(path="/session/y"),
        _error(timestamp="yesterdayZ"),
        _error(identifier=str(uuid.uuid4())),
        _error(more="x"),
        _error(violations=[{"field": "a", "description": "b"}]),
        _without("identifier"),
        _without("path"),
        replace(_error(), headers={**_error().headers, "server": "x"}),
        replace(_error(), headers={**_error().headers, "content-type": "text/html"}),
        replace(_error(), body=b"not found"),
        _success(b"[]"),
        _success(b"{}", 201),
        _success(b"{}", 204),
    ],
)
def test_wrong_answers_do_not(answer: RawAnswer | None) -> None:
    with pytest.raises(WrongAnswerError):
        check(SENT, SENT.data, answer, TOKENS)


def test_violations_have_a_shape() -> None:
    sent = replace(SENT, allowed=frozenset({422}))
    good = [{"field": "a", "description": "b"}]
    check(sent, sent.data, _error(422, "INVALID_REQUEST", violations=good), TOKENS)
    wrong: list[Any] = [[], [{"field": "a"}], [{**good[0], "x": 1}], [{**good[0], "field": ""}]]
    for bad in wrong:
        with pytest.raises(WrongAnswerError):
            check(sent, sent.data, _error(422, "INVALID_REQUEST", violations=bad), TOKENS)


def test_nobody_gets_in_without_a_token() -> None:
    with pytest.raises(WrongAnswerError, match="without any token"):
        check(SENT, b"GET /session/x HTTP/1.1\r\n\r\n", _success(), TOKENS)


@pytest.mark.parametrize(
    ("method", "target", "found"),
    [
        ("GET", b"/session", "/session"),
        ("GET", b"/session?x=/session/1", "/session"),
        ("GET", b"/session/a%2Fb", "/session/{id}"),
        ("DELETE", b"/session/%70layer", "/session/{id}"),
        ("DELETE", b"/session/player/l%65ave", "/session/player/leave"),
        ("GET", b"/session/", 404),
        ("GET", b"/session/a/b", 404),
        ("GET", b"//session", 404),
        ("PATCH", b"/session", 405),
    ],
)
def test_routes_are_found_as_the_server_finds_them(
    method: str, target: bytes, found: str | int
) -> None:
    route = resolve(method, target)
    assert (route if isinstance(route, int) else route.path) == found


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff", b'{"a":1,"a":1}', b"NaN", b'"\\ud800"', b'"\\u0000"', b"1e999"),
        *(b"9" * 20, b"[" * 33 + b"]" * 33, b"[" * 200_000),
    ],
    ids=lambda body: body[:20],
)
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(NotJsonError):
        read(body)
