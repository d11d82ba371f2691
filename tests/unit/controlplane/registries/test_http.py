"""Logins at registries, their tokens and connections."""

import asyncio
import logging
import ssl
import threading
from contextlib import AsyncExitStack
from typing import Any
from unittest import mock

import pytest
from aiohttp import ClientTimeout

from controlplane.registries import http as registry_http
from controlplane.registries.endpoint import UnusableError
from controlplane.registries.http import RegistryHttp
from tests.support.authority import AUTHORITY
from tests.support.fake_clock import FakeClock
from tests.unit.controlplane.registries.login_server import (
    BASIC,
    LOGIN,
    SCOPE,
    Server,
    ask,
    listen,
)


async def test_fetches_an_anonymous_token(server: Server) -> None:
    assert (await server.ask()).body == b"here"
    assert server.asked == [
        ("/v2/x", {}, ""),
        ("/token", {"service": "the registry", "scope": SCOPE}, ""),
        ("/v2/x", {}, "Bearer t1"),
    ]


async def test_fetches_a_token_with_credentials_and_reuses_it(server: Server) -> None:
    server.token = {"access_token": "t2", "token": None}
    server.given.add("Bearer t2")
    for _ in range(3):
        assert (await server.ask(**LOGIN)).status == 200
    assert server.paths == ["/v2/x", "/token", "/v2/x", "/v2/x", "/v2/x"]
    assert server.asked[1][2] == BASIC
    assert {header for _, _, header in server.asked[2:]} == {"Bearer t2"}


async def test_fetches_a_token_for_each_repository_and_login(server: Server) -> None:
    await server.ask(**LOGIN)
    assert server.paths.count("/token") == 1
    await server.ask(scope="repository:other:pull", **LOGIN)
    assert server.paths.count("/token") == 2
    await server.ask()
    assert server.paths.count("/token") == 3


async def test_replaces_an_expired_token(server: Server) -> None:
    server.token = {"token": "t1", "expires_in": 1}
    for _ in range(2):
        await server.ask()
    assert server.paths.count("/token") == 2


@mock.patch.object(registry_http, "MAX_TOKENS", 2)
async def test_evicts_expired_tokens_first(server: Server) -> None:
    for scope, lifetime in (("first", 300), ("expired", 1), ("third", 300)):
        server.token = {"token": scope, "expires_in": lifetime}
        await server.ask(scope)
    assert server.paths.count("/token") == 3
    await server.ask("first")
    assert server.paths.count("/token") == 3


@mock.patch.object(registry_http, "MAX_TOKENS", 2)
async def test_evicts_the_oldest_token_if_none_has_expired(server: Server) -> None:
    for scope in ("first", "second", "third"):
        await server.ask(scope)
    assert server.paths.count("/token") == 3
    await server.ask("second")
    await server.ask("third")
    assert server.paths.count("/token") == 3
    await server.ask("first")
    assert server.paths.count("/token") == 4


async def test_replaces_a_rejected_token_once(server: Server) -> None:
    await server.ask()
    server.given.clear()
    server.token = {"token": "t9", "expires_in": 300}
    assert (await server.ask()).status == 200
    server.accepts = lambda _: False
    await server.ask()
    assert server.paths.count("/token") == 3


async def test_supports_basic_authentication(server: Server) -> None:
    server.challenge = 'Basic realm="x"'
    server.accepts = lambda header: header == BASIC
    with pytest.raises(UnusableError, match="credentials"):
        await server.ask()
    assert (await server.ask(**LOGIN)).status == 200
    with pytest.raises(UnusableError, match="denied access"):
        await server.ask(username="robot", password="wrong")


async def test_limits_the_size_of_a_token_response(server: Server) -> None:
    server.token = {"token": "t" * 70000}
    with pytest.raises(UnusableError, match="larger than 65536 bytes"):
        await server.ask()


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_missing_anonymous_token_is_404(server: Server, status: int) -> None:
    server.token_status = status
    assert (await server.ask()).status == 404


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_refused_token_is_404(server: Server, status: int) -> None:
    server.refusal = status
    server.accepts = lambda _: False
    for more in ({}, LOGIN):
        assert (await server.ask(**more)).status == 404
        assert (await server.ask(**more)).status == 404  # with the cached token


@pytest.mark.parametrize(
    ("status", "reported"),
    [
        (401, "denied access"),
        (403, "denied access"),
        (500, "answered 500"),
    ],
)
async def test_refused_login_is_an_error(server: Server, status: int, reported: str) -> None:
    server.token_status = status
    with pytest.raises(UnusableError, match=reported) as raised:
        await server.ask(**LOGIN)
    assert raised.value.detail.endswith(f"its token service answered {status}")


@pytest.mark.parametrize("status", [401, 403])
async def test_logs_that_a_login_may_not_pull(
    server: Server, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    server.refusal = status
    server.accepts = lambda _: False
    with caplog.at_level(logging.WARNING):
        await server.ask(**LOGIN)
    [record] = caplog.records
    fields = f"registry={server.address} status={status} scope={SCOPE}"
    assert fields in record.getMessage()
    assert "t1" not in caplog.text
    assert "s3cret" not in caplog.text


async def test_does_not_log_that_a_login_finds_no_image(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.refusal = 404
    server.accepts = lambda _: False
    with caplog.at_level(logging.WARNING):
        await server.ask(**LOGIN)
    assert caplog.records == []


async def test_does_not_log_the_refusal_of_an_anonymous_token(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.refusal = 403
    server.accepts = lambda _: False
    with caplog.at_level(logging.WARNING):
        await server.ask()
    assert caplog.records == []


@pytest.mark.parametrize("bearer_first", [True, False])
async def test_prefers_bearer_if_a_header_offers_both(
    server: Server, *, bearer_first: bool
) -> None:
    offers = [server.challenge, 'Basic realm="a registry"']
    server.challenge = ", ".join(offers if bearer_first else reversed(offers))
    assert (await server.ask()).status == 200
    assert server.asked[1][1] == {"service": "the registry", "scope": SCOPE}


@mock.patch.object(registry_http, "TIMEOUT", ClientTimeout(total=None))
async def test_hanging_registry_blocks_no_other(server: Server, stack: AsyncExitStack) -> None:
    http = RegistryHttp(FakeClock())
    stack.push_async_callback(http.close)
    connections = 0
    all_taken = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == registry_http.MAX_CONNECTIONS:
            all_taken.set()
        await reader.read()
        writer.close()

    address = await listen(stack, hang)
    asking = [asyncio.create_task(ask(http, address)) for _ in range(200)]
    await all_taken.wait()
    assert (await ask(http, server.address)).status == 200
    assert connections == registry_http.MAX_CONNECTIONS
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_loads_certificates_once_and_on_a_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = ssl.create_default_context
    threads: list[str] = []

    def note(**how: Any) -> ssl.SSLContext:
        threads.append(threading.current_thread().name)
        return load(**how)

    monkeypatch.setattr(ssl, "create_default_context", note)
    own = f"{AUTHORITY}# that no other test has loaded\n"
    for _ in range(2):
        assert (await server.ask(ca=own)).status == 200
    assert len(threads) == 1
    assert threads[0].startswith("registry certificates")
