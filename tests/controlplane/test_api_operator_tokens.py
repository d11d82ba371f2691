"""Tokens as operators list, create and revoke them, and the streams that end with them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientError, ClientResponse

from controlplane.storage.tables.access import tokens
from tests.controlplane.test_api_streams import following
from tests.support.controlplane.system import (
    PATIENCE,
    Answer,
    System,
    assert_error,
    eventually,
    token_id,
)
from tests.support.controlplane.transactions import Go, blocked, intercept
from tests.support.hold import Hold
from tiltyard.runtime.clock import to_ms

LINE = b"line 1\n"


async def make(system: System, body: Any, token: str | None = None) -> Answer:
    return await system.call("POST", "/operator/token", token=token, json=body)


async def made(system: System, token: str | None = None, **body: Any) -> str:
    answer = (await make(system, body, token)).expect(201)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json["id"] == token_id(answer.json["token"])
    return str(answer.json["token"])


async def revoke(system: System, token: str) -> Answer:
    return await system.call("DELETE", f"/operator/token/{token_id(token)}")


async def listed(system: System, query: str = "") -> list[Any]:
    found: list[Any] = (await system.read(f"/operator/token{query}"))["tokens"]
    return found


async def works(system: System, token: str, path: str = "/session") -> bool:
    answer = await system.call("GET", path, token=token)
    if answer.status != 200:
        assert_error(answer, 401)
    return answer.status == 200


async def test_tokens_are_listed_with_everything_but_their_secret(system: System) -> None:
    before = to_ms(system.clock.time())
    scopes = ["session:read", "logs:read"]
    token = await made(system, account="alice", name="ci", scopes=scopes, expires_after="1h")
    child = await system.make_token(name="child", scopes=2 * ["session:read"] + ["logs:read"])
    (found,) = [t for t in await listed(system) if t["id"] == token_id(token)]
    assert before <= found["created"] <= to_ms(system.clock.time())
    assert found["expires"] - found["created"] == 3600_000
    assert {k: v for k, v in found.items() if k not in {"created", "expires"}} == {
        "id": token_id(token),
        "account": "alice",
        "name": "ci",
        "scopes": ["logs:read", "session:read"],
        "parent": None,
        "lastUsed": None,
        "lastUsedFrom": None,
        "revoked": None,
    }
    assert await works(system, token)
    by_id = {t["id"]: t for t in await listed(system)}
    assert by_id[token_id(token)]["lastUsed"] >= before
    assert by_id[token_id(token)]["lastUsedFrom"] == "127.0.0.1"
    found = by_id[token_id(child)]
    assert found["account"] == "alice"
    assert found["name"] == "child"
    assert found["expires"] is None
    assert found["parent"] == token_id(system.tokens["alice"])
    assert found["scopes"] == ["logs:read", "session:read"]
    operators = by_id[system.operator_id]
    assert operators["account"] is None
    assert operators["name"] == "initial"
    answer = await system.call("GET", "/operator/token?all=1")
    hashes = await system.rows("SELECT hex(secret_hash) FROM token")
    for secret in [*(row[0] for row in hashes), token.split("_")[2]]:
        assert secret.lower() not in answer.text.lower()


async def test_the_list_has_valid_tokens_unless_all_are_requested(system: System) -> None:
    await made(system, account="alice", name="good", scopes=[])
    gone = await made(system, account="alice", name="gone", scopes=[])
    await made(system, account="alice", name="old", scopes=[])
    await revoke(system, gone)
    await system.rows("UPDATE token SET expire_ms=1 WHERE name='old'")
    names = [token["name"] for token in await listed(system, "?account=alice")]
    assert names == ["initial", "good"]
    every = {token["name"]: token for token in await listed(system, "?account=alice&all=true")}
    assert set(every) == {"initial", "good", "gone", "old"}
    assert every["gone"]["revoked"] is not None
    assert every["old"]["expires"] == 1
    assert {t["account"] for t in await listed(system)} == {"alice", "bob", None}
    (operators,) = await listed(system, "?account=")
    assert operators["id"] == system.operator_id
    assert await listed(system, "?account=unknown") == []
    assert_error(await system.call("GET", "/operator/token?all=x"), 422, "all")


async def test_an_accounts_token_outlives_the_operators(system: System) -> None:
    operator = await made(system, name="second", scopes=["operator:read", "operator:write"])
    studio = await made(system, operator, account="alice", name="ci", scopes=["session:read"])
    event = (await system.events("token.created", "actor, address, object, data"))[-1]
    assert event[:3] == (token_id(operator), "127.0.0.1", token_id(studio))
    assert json.loads(event[3]) == {"name": "ci", "scopes": ["session:read"], "expires": None}
    assert (await revoke(system, operator)).json == {"revoked": [token_id(operator)]}
    assert not await works(system, operator, "/operator/token")
    assert await works(system, studio)
    assert_error(await make(system, {"name": "x", "scopes": []}, operator), 401)


async def test_an_operators_token_is_limited_to_its_parent(system: System) -> None:
    writer = await made(system, name="writer", scopes=["operator:write"], expires_after="1h")
    end = await system.rows("SELECT expire_ms FROM token WHERE id=?", token_id(writer))
    refused = await make(system, {"name": "x", "scopes": ["operator:read"]}, writer)
    assert_error(refused, 403, details="operator:read")
    for wanted in (None, "2h"):
        body = {"name": f"child {wanted}", "scopes": ["operator:write"], "expires_after": wanted}
        child = await made(system, writer, **body)
        sql = "SELECT expire_ms, parent, account FROM token WHERE id=?"
        assert await system.rows(sql, token_id(child)) == [(end[0][0], token_id(writer), None)]


async def test_refusals_make_no_token(system: System) -> None:
    body: dict[str, Any] = {"account": "alice", "name": "x", "scopes": []}
    cases: list[tuple[dict[str, Any], int, tuple[str, ...]]] = [
        ({"scopes": ["session:read", "operator:read"]}, 400, ("scopes",)),
        ({"account": None, "scopes": ["session:read"]}, 400, ("scopes",)),
        ({"account": "unknown", "scopes": ["operator:read"]}, 400, ("scopes",)),
        ({"account": "unknown"}, 404, ()),
        ({"name": "initial"}, 409, ()),
        ({"account": None, "name": "initial"}, 409, ()),
    ]
    for changes, status, fields in cases:
        assert_error(await make(system, body | changes), status, *fields)
    assert await system.rows("SELECT 1 FROM token WHERE name='x'") == []
    await made(system, **body)
    assert_error(await make(system, body), 409)
    await made(system, **body | {"account": "bob"})


async def test_a_body_has_at_most_64_kib(system: System) -> None:
    body = json.dumps({"account": "alice", "name": "x", "scopes": []}).encode()
    large = body + b" " * (64 * 1024 + 1 - len(body))
    assert_error(await system.call("POST", "/operator/token", data=large), 413)
    (await system.call("POST", "/operator/token", data=large[:-1])).expect(201)


async def test_revocation_ends_children_at_once_and_is_idempotent(system: System) -> None:
    root = await made(system, account="alice", name="root", scopes=["token:write", "session:read"])
    child = await system.make_token(root, name="child", scopes=["token:write", "session:read"])
    grandchild = await system.make_token(child, name="grandchild", scopes=["session:read"])
    other = await made(system, account="alice", name="other", scopes=["session:read"])
    first = await revoke(system, child)
    assert set(first.json["revoked"]) == {token_id(child), token_id(grandchild)}
    assert await works(system, root)
    assert not await works(system, child)
    assert not await works(system, grandchild)
    assert await works(system, other)
    again = await revoke(system, child)
    assert again.status == 200
    assert again.json == {"revoked": []}
    assert (await revoke(system, root)).json == {"revoked": [token_id(root)]}
    assert set(await system.events("token.revoked", "object, account, actor, address")) == {
        (token_id(token), "alice", system.operator_id, "127.0.0.1")
        for token in (root, child, grandchild)
    }


async def test_a_call_with_a_token_revoked_meanwhile_creates_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes = ["operator:read", "operator:write"]
    second = await made(system, name="second", scopes=scopes)
    for account in (None, "alice"):
        token = await made(system, second, name=f"maker {account}", scopes=scopes)

        async def late(go: Go, token: str = token) -> Any:
            assert (await revoke(system, token)).status == 200
            return await go()

        intercept(monkeypatch, tokens.make, late)
        assert_error(
            await make(system, {"account": account, "name": "late", "scopes": []}, token), 401
        )
        monkeypatch.undo()
    assert await system.rows("SELECT 1 FROM token WHERE name='late'") == []


# ---- streams


async def broken_off(response: ClientResponse) -> None:
    """Wait for the connection to end without the last, empty chunk of a complete body."""
    with pytest.raises(ClientError):
        await response.read()


def is_open(response: ClientResponse) -> bool:
    """Return whether a body of which all is read has neither ended nor broken off."""
    return not response.content.at_eof() and response.content.exception() is None


@pytest.fixture
async def playing(system: System) -> System:
    await system.make_application()
    assert (await system.start(id="s")).status == 201
    system.agent.logs = [LINE]
    return system


def count(system: System) -> int:
    """Return the number of open streams."""
    return system.control_plane.services.streams.count


async def test_a_stream_ends_when_its_token_is_revoked(playing: System) -> None:
    scopes = ["token:write", "logs:read"]
    parent = await made(playing, account="alice", name="parent", scopes=scopes)
    child = await playing.make_token(parent, name="child", scopes=["logs:read"])
    other = await made(playing, account="alice", name="other", scopes=["logs:read"])
    async with (
        following(playing, parent) as of_parent,
        following(playing, child) as of_child,
        following(playing, other) as of_other,
    ):
        assert count(playing) == 3
        assert (await revoke(playing, parent)).status == 200
        await broken_off(of_parent)
        await broken_off(of_child)
        assert is_open(of_other)
        assert count(playing) == 1
        playing.agent.log.ended.set()
        assert await of_other.read() == b""


async def test_a_stream_ends_when_its_account_is_removed(playing: System) -> None:
    async with following(playing) as response:
        await playing.call("DELETE", "/session/s")
        assert (await playing.call("DELETE", "/operator/account/alice")).status == 204
        await broken_off(response)
    assert count(playing) == 0


async def test_a_stream_ends_when_its_token_expires(playing: System) -> None:
    lasting = await made(playing, account="alice", name="lasting", scopes=["logs:read"])
    token = await made(
        playing, account="alice", name="hour", scopes=["logs:read"], expires_after="1h"
    )
    loop = asyncio.get_running_loop()
    streams = playing.control_plane.services.streams
    async with following(playing, token) as response, following(playing, lasting) as other:
        ends = {stream.token_id: stream.timeout for stream in streams._open}
        assert ends[token_id(lasting)].when() is None
        left = (ends[token_id(token)].when() or 0.0) - loop.time()
        assert 3600 - PATIENCE < left <= 3600
        ends[token_id(token)].reschedule(loop.time())  # As if they had passed
        await broken_off(response)
        assert is_open(other)
        assert count(playing) == 1


async def test_a_stream_ends_even_if_the_operator_disconnects(
    playing: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await made(playing, account="alice", name="x", scopes=["logs:read"])
    sent = asyncio.Event()

    async def note(go: Go) -> Any:
        sent.set()
        return await go()

    intercept(monkeypatch, tokens.revoke, note)
    async with following(playing, token) as response:
        async with blocked(playing.control_plane.store.run):
            call = asyncio.create_task(revoke(playing, token))
            await sent.wait()
            call.cancel()
            await asyncio.wait({call})
        await broken_off(response)


async def test_a_token_revoked_before_its_stream_is_registered_gets_none(
    playing: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revocation between the check of the token and the stream's registration."""
    token = await made(playing, account="alice", name="x", scopes=["logs:read"])
    sessions = playing.control_plane.services.sessions
    logs: Callable[..., Awaitable[Any]] = sessions.logs

    async def revoked_meanwhile(*arguments: Any, **more: Any) -> Any:
        chunks = await logs(*arguments, **more)
        assert (await revoke(playing, token)).status == 200
        return chunks

    monkeypatch.setattr(sessions, "logs", revoked_meanwhile)
    assert_error(await playing.call("GET", "/logs?id=s&follow=1", token=token), 401)
    await eventually(lambda: count(playing) == 0)


async def test_a_token_that_ends_before_the_first_byte_is_401(
    playing: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("controlplane.api.operations.streams.FIRST_BYTE_WAIT", None)
    token = await made(playing, account="alice", name="x", scopes=["logs:read"])
    playing.agent.logs = []
    asked = playing.agent.before_logs = Hold()
    asked.set()
    call = asyncio.create_task(playing.call("GET", "/logs?id=s&follow=1", token=token))
    await asked.reached.wait()
    assert (await revoke(playing, token)).status == 200
    assert_error(await call, 401)
    await eventually(playing.agent.log_cancelled.is_set)
    # Otherwise the client has retried on another connection.
    assert "response aborted" not in caplog.text
