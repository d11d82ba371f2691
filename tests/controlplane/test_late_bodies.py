"""A token that ends while its request's body is under way does nothing any more."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.controlplane.raw_http import Wire, assert_documented
from tests.support.controlplane.system import APPLICATION, System, eventually


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    async with System(tmp_path) as running:
        yield running


async def _revoke(system: System, token: str) -> None:
    path = f"/operator/token/{token.split('_')[1]}"
    assert (await system.call("DELETE", path)).status == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "operator"),
    [
        ("POST", "/application", APPLICATION | {"name": "late"}, False),
        ("POST", "/session", {"location": "local", "image": "game", "id": "late"}, False),
        ("POST", "/operator/account", {"name": "late"}, True),
        ("PUT", "/operator/region/late", None, True),
    ],
)
async def test_a_body_that_comes_after_the_end_of_its_token_is_401(
    system: System, method: str, path: str, body: Any, operator: bool
) -> None:
    await system.make_application()
    made = await system.call(
        "POST",
        "/operator/token",
        json={"name": "short", "scopes": ["operator:write"]}
        if operator
        else {
            "name": "short",
            "account": "alice",
            "scopes": ["application:write", "session:start"],
        },
    )
    token = made.json["token"]
    data = b"" if body is None else json.dumps(body).encode()
    port = int(system.control_plane.base_url.rpartition(":")[2])
    async with Wire(port) as wire:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        if body is None:
            await _revoke(system, token)
        wire.send(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data[:3])
        if body is not None:

            async def admitted() -> bool:
                sql = "SELECT last_used_ms FROM token WHERE id=?"
                return (await system.rows(sql, token.split("_")[1]))[0][0] is not None

            await eventually(admitted)
            await _revoke(system, token)
            wire.send(data[3:])
        answer = await wire.answer()
    assert answer is not None
    assert_documented(answer)
    assert answer.status == 401
    for sql in (
        "SELECT 1 FROM session WHERE id='late'",
        "SELECT 1 FROM application WHERE name='late'",
        "SELECT 1 FROM account WHERE name='late'",
        "SELECT 1 FROM region WHERE name='late'",
    ):
        assert await system.rows(sql) == []
