"""Registry logins, and protection from hostile registries."""

import asyncio
import base64
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from unittest import mock

import pytest
from aiohttp import ClientTimeout, web

from controlplane.registries import http as registry_http
from controlplane.registries.endpoint import Endpoint, UnusableError
from controlplane.registries.http import RegistryHttp, Reply
from controlplane.registries.login import checked_realm
from tests.support.authority import AUTHORITY
from tests.support.fake_clock import FakeClock

SCOPE = "repository:studio/game:pull"
LOGIN = {"username": "robot", "password": "s3cret"}
BASIC = "Basic " + base64.b64encode(b"robot:s3cret").decode()


class Server:
    """A registry that requires a login, with its token service."""

    def __init__(self, http: RegistryHttp) -> None:
        self._http = http
        self.challenge = 'Bearer realm="http://{address}/token",service="the registry"'
        self.accepts: Callable[[str], bool] = lambda header: header in self.given
        self.given: set[str] = set()
        self.token: dict[str, Any] = {"token": "t1", "expires_in": 300}
        self.token_status = 200
        self.refusal = 401  # Status for a rejected token
        self.asked: list[tuple[str, dict[str, str], str]] = []
        self.address = ""

    async def start(self, stack: AsyncExitStack) -> None:
        app = web.Application()
        app.router.add_get("/v2/{rest:.*}", self._answer)
        app.router.add_get("/token", self._make_token)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.address = f"127.0.0.1:{runner.addresses[0][1]}"

    async def ask(self, scope: str = SCOPE, **more: Any) -> Reply:
        """Ask it as the control plane does."""
        return await ask(self._http, self.address, scope, **more)

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]

    def _note(self, request: web.Request) -> str:
        header = request.headers.get("Authorization", "")
        self.asked.append((request.path, dict(request.query), header))
        return header

    async def _answer(self, request: web.Request) -> web.Response:
        header = self._note(request)
        if self.accepts(header):
            return web.Response(text="here")
        challenge = self.challenge.format(address=self.address)
        status = self.refusal if header else 401
        return web.Response(status=status, headers={"WWW-Authenticate": challenge})

    async def _make_token(self, request: web.Request) -> web.Response:
        self._note(request)
        if isinstance(self.token.get("token"), str):
            self.given.add(f"Bearer {self.token['token']}")
        return web.json_response(self.token, status=self.token_status)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def server(stack: AsyncExitStack, http: RegistryHttp) -> Server:
    server = Server(http)
    await server.start(stack)
    return server


@pytest.fixture
async def http(stack: AsyncExitStack) -> RegistryHttp:
    client = RegistryHttp(FakeClock())
    stack.push_async_callback(client.close)
    return client


async def ask(http: RegistryHttp, address: str, scope: str = SCOPE, **more: Any) -> Reply:
    return await http.ask(Endpoint(address, **more), "/v2/x", scope=scope, max_bytes=100)


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
    # Tokens are per repository and credentials.
    await server.ask(scope="repository:other:pull", **LOGIN)
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
async def test_refused_or_missing_token_is_404(server: Server, status: int) -> None:
    server.token_status = status
    assert (await server.ask()).status == 404
    server.token_status = 200
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


# -- forbidden destinations ----------------------------------------------------------------------


async def listen(stack: AsyncExitStack, accept: Callable[..., Any]) -> str:
    """Accept connections; return the address."""
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    stack.push_async_callback(server.wait_closed)
    stack.callback(server.close)
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def raw(stack: AsyncExitStack, answer: bytes) -> str:
    """Answer every request with this, then close; return the address."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    return await listen(stack, accept)


@pytest.fixture
async def canary(stack: AsyncExitStack) -> mock.Mock:
    """A listener that must get no connection."""
    accept = mock.Mock(side_effect=lambda _, writer: writer.close())
    accept.address = await listen(stack, accept)
    return accept


async def test_uses_auth_hosts(http: RegistryHttp, server: Server, stack: AsyncExitStack) -> None:
    service = Server(http)
    await service.start(stack)
    server.given = service.given
    server.challenge = f'Bearer realm="http://{service.address}/token"'
    with pytest.raises(UnusableError):
        await server.ask(**LOGIN)
    assert service.asked == []
    assert server.paths == ["/v2/x"]
    assert (await server.ask(auth_hosts=(service.address,))).status == 200
    assert service.asked == [("/token", {"scope": SCOPE}, "")]


def test_realms_are_compared_as_origins() -> None:
    hub = Endpoint("registry-1.docker.io", auth_hosts=("auth.docker.io",))
    for realm in ("https://auth.docker.io/token", "https://AUTH.docker.io:443/token"):
        assert checked_realm(hub, realm).host == "auth.docker.io"
    for realm in (
        "",
        "/token",
        "http://auth.docker.io/token",
        "https://auth.docker.io:8443/token",
        "https://auth.docker.io.evil.example/token",
        "https://evil-auth.docker.io/token",
        "https://docker.io/token",
        "//auth.docker.io/token",
        "ftp://auth.docker.io/token",
        "https://auth.docker.io@evil.example/token",
        "https://evil.example#@auth.docker.io/token",
        "https://evil.example\\@auth.docker.io/x",
        "https://[bad/token",
        "https://auth.docker.io:99999/token",
    ):
        with pytest.raises(UnusableError):
            checked_realm(hub, realm)
    assert checked_realm(hub, "https://user:pass@auth.docker.io/token#x").user is None


async def test_does_not_follow_redirects(
    http: RegistryHttp, stack: AsyncExitStack, canary: mock.Mock
) -> None:
    redirect = f"HTTP/1.1 307 x\r\nLocation: http://{canary.address}/\r\nContent-Length: 0\r\n\r\n"
    assert (await ask(http, await raw(stack, redirect.encode()))).status == 307
    assert canary.call_count == 0


async def test_does_not_connect_to_a_name_with_a_private_address(
    http: RegistryHttp, canary: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = canary.address.rpartition(":")[2]
    names = {"rebound.example": ["1.1.1.1", "127.0.0.1"], "inner.example": ["127.0.0.1"]}

    def look_up(host: str) -> list[Any]:
        return [(socket.AF_INET, socket.IPPROTO_TCP, address) for address in names[host]]

    monkeypatch.setattr("controlplane.outbound.resolver.look_up", look_up)
    for name in names:
        with pytest.raises(UnusableError, match=r"^it cannot be reached$") as raised:
            await ask(http, f"{name}:{port}")
        assert "127.0.0.1, which is not public" in raised.value.detail
    assert canary.call_count == 0
    # Operators may declare a registry private.
    with pytest.raises(UnusableError):
        await ask(http, f"inner.example:{port}", private=True)
    assert canary.call_count == 1


# -- failure reports -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"x" * 60,
    ],
    ids=["whole", "truncated"],
)
async def test_credentials_that_a_registry_sends_back_are_redacted(
    http: RegistryHttp, stack: AsyncExitStack, begin: bytes
) -> None:
    password = "s3cret-and-long" * 2
    basic = base64.b64encode(f"robot:{password}".encode())

    async def send_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if basic in request:
            writer.write(begin + basic + b" " + password.encode() + b"\r\n")
        else:
            challenge = b'WWW-Authenticate: Basic realm="x"\r\n'
            writer.write(b"HTTP/1.1 401 x\r\n" + challenge + b"Content-Length: 0\r\n\r\n")
        writer.close()

    address = await listen(stack, send_back)
    with pytest.raises(UnusableError, match=r"^it cannot be reached$") as raised:
        await ask(http, address, username="robot", password=password)
    assert basic.decode()[:9] not in raised.value.detail
    assert "s3cret" not in raised.value.detail
    assert "[redacted]" in raised.value.detail


async def test_password_in_a_realm_is_redacted(server: Server) -> None:
    server.challenge = 'Bearer realm="https://s3cret.example/token"'
    with pytest.raises(UnusableError, match="another host for the log-in") as raised:
        await server.ask(**LOGIN)
    assert "s3cret" not in raised.value.detail
    assert "[redacted]" in raised.value.detail


def test_representation_of_an_endpoint_has_no_password() -> None:
    assert "s3cret" not in repr(Endpoint("ghcr.io", "robot", "s3cret"))


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0 banner\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbanner",
    ],
    ids=["not HTTP", "nothing", "cut"],
)
async def test_only_the_log_contains_details_of_a_failure(
    http: RegistryHttp, stack: AsyncExitStack, answer: bytes
) -> None:
    address = await raw(stack, answer)
    with pytest.raises(UnusableError, match=r"^it cannot be reached$") as raised:
        await ask(http, address)
    assert ("banner" in raised.value.detail) is (b"SSH" in answer)


@pytest.mark.parametrize("address", ["a" * 64 + ".example.com", "xn--a.example.com", "a:99999"])
async def test_rejects_an_invalid_address(http: RegistryHttp, address: str) -> None:
    with pytest.raises(UnusableError):
        await ask(http, address, private=True)


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
