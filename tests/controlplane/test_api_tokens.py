"""POST /token, and the life of a token: expiry, children, last use."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.catalog.accounts import LAST_USED_STEP
from controlplane.domain.tokens import ACCOUNT_SCOPES
from tests.support.controlplane.system import Answer, System, assert_error, token_id
from tiltyard.runtime.clock import to_ms

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


async def test_a_name_is_free_again_once_its_token_has_ended(system: System) -> None:
    wanted: dict[str, Any] = {"name": "ci", "scopes": []}
    first = await system.make_token(**wanted)
    assert_error(await _ask(system, wanted), 409)
    assert_error(await _ask(system, wanted | {"name": "initial"}), 409)
    (await system.call("POST", "/token", account="bob", json=wanted)).expect(201)
    assert (await system.call("DELETE", f"/operator/token/{token_id(first)}")).status == 200
    second = await system.make_token(**wanted)
    assert_error(await _ask(system, wanted), 409)
    await system.rows("UPDATE token SET expire_ms=1 WHERE id=?", token_id(second))
    await system.make_token(**wanted)


async def test_concurrent_requests_use_a_token_name_once(system: System) -> None:
    wanted = {"name": "ci", "scopes": []}
    answers = await asyncio.gather(*(_ask(system, wanted) for _ in range(50)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 49


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
