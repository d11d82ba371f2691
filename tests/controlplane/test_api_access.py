"""Tokens: header, expiry, children and last use; the shape of answers; the log of requests."""

import asyncio
import json
import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.access.accounts import LAST_USED_STEP
from controlplane.cli.server import LIMITED
from controlplane.domain.access import tokens
from controlplane.domain.access.tokens import ACCOUNT_SCOPES
from controlplane.domain.errors import Reason
from controlplane.http.errors import REFUSED, STATUSES
from controlplane.storage.tables.access.accounts import find_token
from controlplane.storage.tables.hosts.fleet import regions
from tests.support.controlplane.raw_http import Wire, assert_documented
from tests.support.controlplane.system import (
    APPLICATION,
    Answer,
    System,
    assert_error,
    eventually,
    eventually_equals,
    token_id,
)
from tests.support.controlplane.transactions import Go, fail_once, intercept
from tests.support.log_lines import logfmt
from tiltyard.runtime.clock import to_ms
from tiltyard.runtime.logging.events import Event
from tiltyard.runtime.logging.output import AT_ONCE, written

pytestmark = pytest.mark.system(application={})


async def test_all_invalid_tokens_get_the_same_answer(system: System) -> None:
    good = system.tokens["alice"]
    bad = ["x", good[:-1], good[:-1] + ("0" if good[-1] != "0" else "1"), tokens.mint().text]
    for column in ("expire_ms", "revoked_ms"):
        bad.append(await system.make_token(name=column, scopes=["session:read"]))
        await system.rows(f"UPDATE token SET {column}=1 WHERE name=?", column)
    bodies = set()
    for token in bad:
        answer = assert_error(await system.call("GET", "/session", token=token), 401)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        bodies.add((answer.json["message"], answer.json["details"]))
    assert len(bodies) == 1


async def test_the_header_is_read_strictly(system: System) -> None:
    good = system.tokens["alice"]
    url = system.control_plane.base_url + "/session"
    for headers, status in [
        ([], 401),
        ([("Authorization", good)], 401),
        ([("Authorization", f"Basic {good}")], 401),
        ([("Authorization", f"Bearer {good}")] * 2, 401),
        ([("Authorization", f"bEARER {good}")], 200),
    ]:
        async with system.http.get(url, headers=headers) as response:
            assert response.status == status


@pytest.mark.system(environment="staging")
async def test_health_names_the_environment(system: System) -> None:
    assert (await system.read("/healthz"))["environment"] == "staging"


async def test_a_token_that_starts_sessions_may_delegate_their_players(system: System) -> None:
    scopes = ["token:write", "session:start"]
    maker = await system.make_token(name="maker", scopes=scopes)
    child = await system.make_token(maker, name="players", scopes=["session:players"])
    assert_error(await system.join("p", session="none", token=child), 404)
    other = await system.make_token(name="other", scopes=["token:write"])
    refused = await _ask(system, {"name": "x", "scopes": ["session:players"]}, other)
    assert_error(refused, 403, details="session:players")


async def test_only_the_owner_can_read_files(system: System) -> None:
    state = system.folder / "state"
    assert state.stat().st_mode & 0o777 == 0o700
    files = [path for path in state.iterdir() if path.suffix != ".draft"]  # These come and go
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_every_reason_has_a_status() -> None:
    assert set(STATUSES) == set(Reason)


async def test_an_unexpected_failure_leaks_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    intercept(monkeypatch, regions, fail_once(RuntimeError("secret inner text")))
    answer = assert_error(await system.call("GET", "/region"), 500)
    assert "secret" not in answer.text
    assert answer.json["identifier"] in caplog.text


@pytest.mark.parametrize(
    ("path", "body", "account"),
    [
        ("/application", APPLICATION | {"name": "late"}, "alice"),
        ("/session", {"location": "local", "image": "game", "id": "late"}, "alice"),
        ("/operator/account", {"name": "late"}, None),
    ],
)
async def test_a_body_that_comes_after_the_end_of_its_token_is_401(
    system: System, path: str, body: dict[str, Any], account: str | None
) -> None:
    scopes = ["application:write", "session:start"] if account else ["operator:write"]
    wanted = {"account": account, "name": "short", "scopes": scopes}
    token = (await system.call("POST", "/operator/token", json=wanted)).json["token"]
    data = json.dumps(body).encode()
    admitted = "SELECT last_used_ms > 0 FROM token WHERE id=?"
    async with Wire(system.port) as wire:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        wire.send(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data[:3])
        await eventually_equals(lambda: system.rows(admitted, token_id(token)), [(1,)])
        (await system.call("DELETE", f"/operator/token/{token_id(token)}")).expect(200)
        wire.send(data[3:])
        answer = await wire.read_answer()
    assert_documented(answer)
    assert answer.status == 401
    assert await system.rows("SELECT 1 FROM session WHERE id='late'") == []
    assert await system.rows("SELECT 1 FROM application WHERE name='late'") == []
    assert await system.rows("SELECT 1 FROM account WHERE name='late'") == []


@contextmanager
def logged(path: Path) -> Iterator[list[dict[str, str]]]:
    """Write the log to a file meanwhile; at the end the list has its lines."""
    lines: list[dict[str, str]] = []
    with (
        path.open("wb") as file,
        written("info", "logfmt", limited=LIMITED, descriptor=file.fileno()),
    ):
        yield lines
    lines += map(logfmt, path.read_text("utf-8").splitlines())


async def test_repeated_refusals_are_limited_but_no_others(system: System, tmp_path: Path) -> None:
    with logged(tmp_path / "log") as lines:
        for number in range(5 * AT_ONCE):
            await system.call("GET", f"/session/none-{number}")
        await system.call("GET", "/session", token="ty_wrong")
    refused = [line for line in lines if line["event"] == REFUSED]
    assert [line["status"] for line in refused] == ["404"] * AT_ONCE + ["401"]


async def test_success_is_not_logged(system: System, tmp_path: Path) -> None:
    [host] = system.control_plane.fleet.hosts
    reported_at = host.state.reported_at
    with logged(tmp_path / "log") as lines:
        for path in ("/session", "/application", "/healthz", "/readyz", "/region"):
            await system.call("GET", path)
        system.agent.send_snapshot()
        await eventually(lambda: host.state.reported_at != reported_at)
    # The application is new: its image may still be on its way.
    assert [line for line in lines if line["event"] != "image pulled"] == []


async def test_a_request_answered_at_debug_has_what_it_was(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = await system.call("GET", "/session")
    [line] = [
        record.msg
        for record in caplog.records
        if isinstance(record.msg, Event) and record.msg["event"] == "request answered"
    ]
    assert line["request"] == answer.headers["X-Request-Id"]
    assert line["method"] == "GET"
    assert line["path"] == "/session"
    assert line["status"] == 200
    assert line["account"] == "alice"


LIMIT = 64 * 1024


async def _expire_ms(system: System, token: str) -> Any:
    return (await system.rows("SELECT expire_ms FROM token WHERE id=?", token_id(token)))[0][0]


async def _ask(system: System, body: Any, token: str | None = None) -> Answer:
    return await system.call("POST", "/token", token=token, json=body)


async def test_an_invalid_body_is_400(system: System) -> None:
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"name": 1, "scopes": None, "extra": 1}, ("name", "scopes", "extra")),
        # Unknown scopes are reported before those not held.
        ({"scopes": ["operator:write", "x"]}, ("scopes[1]",)),
    ]
    for changes, fields in cases:
        body = {"name": "x", "scopes": ["session:read"]} | changes
        assert_error(await _ask(system, body), 400, *fields)
    assert_error(await system.call("POST", "/token", data=b"{"), 422, "body")


@pytest.mark.parametrize("chunked", [False, True])
async def test_more_than_64_kib_is_413(system: System, chunked: bool) -> None:
    body = json.dumps({"name": "x", "scopes": []}).encode()

    async def send(size: int) -> Answer:
        data = body + b" " * (size - len(body))
        return await system.call("POST", "/token", data=data, chunked=chunked or None)

    assert_error(await send(LIMIT + 1), 413)
    assert (await send(LIMIT)).status == 201
    assert_error(await system.call("POST", "/token", token="x", data=b" " * (LIMIT + 1)), 401)


async def test_scopes_that_are_not_held_are_403(system: System) -> None:
    answer = await _ask(system, {"name": "x", "scopes": ["operator:read", "session:read"]})
    assert_error(answer, 403, details="operator:read")
    assert "session:read" not in answer.json["details"]
    everything = await system.make_token(name="all", scopes=sorted(ACCOUNT_SCOPES))
    assert (await system.call("GET", "/session", token=everything)).status == 200


async def test_a_child_never_outlives_its_parent(system: System) -> None:
    before = to_ms(system.clock.time())
    maker = await system.make_token(name="maker", scopes=["token:write"], expires_after="0m")
    end = await _expire_ms(system, maker)
    assert end - before >= 60_000
    for number, wanted in enumerate((None, "2h", "8760h")):
        child = await system.make_token(maker, name=str(number), scopes=[], expires_after=wanted)
        assert await _expire_ms(system, child) == end
    hour = await system.make_token(name="hour", scopes=["token:write"], expires_after="1h")
    minute = await system.make_token(hour, name="minute", scopes=[], expires_after="1m")
    assert await _expire_ms(system, minute) < await _expire_ms(system, hour)


async def test_a_name_is_used_once_and_free_again_once_its_token_has_ended(system: System) -> None:
    wanted: dict[str, Any] = {"name": "ci", "scopes": []}
    answers = await asyncio.gather(*(_ask(system, wanted) for _ in range(50)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 49
    (first,) = (answer.json["token"] for answer in answers if answer.status == 201)
    assert_error(await _ask(system, wanted | {"name": "initial"}), 409)
    (await system.call("POST", "/token", account="bob", json=wanted)).expect(201)
    assert (await system.call("DELETE", f"/operator/token/{token_id(first)}")).status == 200
    second = await system.make_token(**wanted)
    assert_error(await _ask(system, wanted), 409)
    await system.rows("UPDATE token SET expire_ms=1 WHERE id=?", token_id(second))
    await system.make_token(**wanted)


async def test_the_last_use_is_stored(system: System) -> None:
    token = await system.make_token(name="x", scopes=["session:read"])
    sql = "SELECT last_used_ms FROM token WHERE id=?"
    assert await system.rows(sql, token_id(token)) == [(None,)]
    before = to_ms(system.clock.time())
    await system.call("GET", "/session", token=token)
    used = (await system.rows(sql, token_id(token)))[0][0]
    assert before <= used
    long_ago = before - int(LAST_USED_STEP * 1000)
    await system.rows("UPDATE token SET last_used_ms=? WHERE id=?", long_ago, token_id(token))
    assert_error(await system.call("GET", "/application", token=token), 403)
    assert (await system.rows(sql, token_id(token)))[0][0] >= used


async def test_refusal_of_a_known_id_reads_the_database_as_that_of_an_unknown_one(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    async def count(go: Go) -> Any:
        nonlocal reads
        reads += 1
        return await go()

    intercept(monkeypatch, find_token, count)
    token = system.tokens["alice"]
    await system.read("/region", token=token)
    reads = 0
    await system.read("/region", token=token)
    assert reads == 0

    known = _forged(token_id(token))
    for _ in range(3):
        assert_error(await system.call("GET", "/region", token=known), 401)
    assert reads == 3
    for number in range(3):
        assert_error(await system.call("GET", "/region", token=_forged(f"{number:016}")), 401)
    assert reads == 6
    await system.read("/region", token=token)
    assert reads == 6


def _forged(of: str) -> str:
    """Return a well-formed token of an id, with a wrong secret."""
    body = f"ty_{of}_{'0' * 64}"
    return f"{body}{zlib.crc32(body.encode()):08x}"
