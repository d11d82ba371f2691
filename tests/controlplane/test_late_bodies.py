"""A token that ends while its request's body is under way does nothing any more."""

import json
from typing import Any

import pytest

from tests.support.controlplane.raw_http import Wire, assert_documented
from tests.support.controlplane.system import APPLICATION, System, eventually_equals, token_id


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
    await system.make_application()
    scopes = ["application:write", "session:start"] if account else ["operator:write"]
    wanted = {"account": account, "name": "short", "scopes": scopes}
    token = (await system.call("POST", "/operator/token", json=wanted)).json["token"]
    data, admitted = json.dumps(body).encode(), "SELECT last_used_ms > 0 FROM token WHERE id=?"
    async with Wire(system.port) as wire:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        wire.send(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data[:3])
        await eventually_equals(lambda: system.rows(admitted, token_id(token)), [(1,)])
        (await system.call("DELETE", f"/operator/token/{token_id(token)}")).expect(200)
        wire.send(data[3:])
        answer = await wire.answer()
    assert answer is not None
    assert_documented(answer)
    assert answer.status == 401
    for column in ("session.id", "application.name", "account.name"):
        table = column.partition(".")[0]
        assert await system.rows(f"SELECT 1 FROM {table} WHERE {column}='late'") == []
