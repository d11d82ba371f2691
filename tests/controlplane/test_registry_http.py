"""Log-ins at registries, and where a hostile one cannot send us."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.resolver import ThreadedResolver

from controlplane import registry_http
from controlplane.registry_http import (
    Endpoint,
    RegistryHttp,
    Reply,
    UnusableError,
    _checked_realm,
    is_public,
)

SCOPE = "repository:studio/game:pull"
BASIC = "Basic " + base64.b64encode(b"robot:s3cret").decode()


class Server:
    """A registry that wants a log-in, and the service that makes its tokens."""

    def __init__(self) -> None:
        self.challenge = 'Bearer realm="http://{address}/token",service="the registry"'
        self.accepts: Callable[[str], bool] = lambda header: header in self.given
        self.given: set[str] = set()
        self.token: dict[str, Any] = {"token": "t1", "expires_in": 300}
        self.token_status = 200
        self.asked: list[tuple[str, dict[str, str], str]] = []
        self.address = ""

    async def start(self, stack: AsyncExitStack) -> None:
        app = web.Application()
        app.router.add_get("/v2/{rest:.*}", self._registry)
        app.router.add_get("/token", self._make_token)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.address = f"127.0.0.1:{runner.addresses[0][1]}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]

    def _note(self, request: web.Request) -> str:
        header = request.headers.get("Authorization", "")
        self.asked.append((request.path, dict(request.query), header))
        return header

    async def _registry(self, request: web.Request) -> web.Response:
        if self.accepts(self._note(request)):
            return web.Response(text="here")
        challenge = self.challenge.format(address=self.address)
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

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
async def server(stack: AsyncExitStack) -> Server:
    server = Server()
    await server.start(stack)
    return server


@pytest.fixture
async def http(stack: AsyncExitStack) -> RegistryHttp:
    client = RegistryHttp()
    await client.start()
    stack.push_async_callback(client.stop)
    return client


async def ask(http: RegistryHttp, server: Server, scope: str = SCOPE, **more: Any) -> Reply:
    endpoint = Endpoint(server.address, **more)
    return await http.ask(endpoint, "GET", "/v2/x", scope=scope, max_bytes=100)


async def test_a_token_is_fetched_without_credentials(http: RegistryHttp, server: Server) -> None:
    assert (await ask(http, server)).body == b"here"
    assert server.asked == [
        ("/v2/x", {}, ""),
        ("/token", {"service": "the registry", "scope": SCOPE}, ""),
        ("/v2/x", {}, "Bearer t1"),
    ]


async def test_a_token_is_fetched_with_credentials_and_used_again(
    http: RegistryHttp, server: Server
) -> None:
    server.token = {"access_token": "t2", "token": None}
    server.given.add("Bearer t2")
    for _ in range(3):
        assert (await ask(http, server, username="robot", password="s3cret")).status == 200
    assert server.paths == ["/v2/x", "/token", "/v2/x", "/v2/x", "/v2/x"]
    assert server.asked[1][2] == BASIC
    assert {header for _, _, header in server.asked[2:]} == {"Bearer t2"}
    # Another repository, other credentials: another token.
    await ask(http, server, scope="repository:other:pull", username="robot", password="s3cret")
    await ask(http, server)
    assert server.paths.count("/token") == 3


async def test_a_token_that_has_expired_is_fetched_anew(
    http: RegistryHttp, server: Server
) -> None:
    server.token = {"token": "t1", "expires_in": 1}
    for _ in range(2):
        await ask(http, server)
    assert server.paths.count("/token") == 2


async def test_a_token_that_is_refused_is_fetched_anew_once(
    http: RegistryHttp, server: Server
) -> None:
    await ask(http, server)
    server.given.clear()
    server.token = {"token": "t9", "expires_in": 300}
    assert (await ask(http, server)).status == 200
    server.accepts = lambda _: False
    assert (await ask(http, server)).status == 401
    assert server.paths.count("/token") == 3


async def test_tokens_that_are_kept_are_bounded(
    http: RegistryHttp, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_http, "MAX_TOKENS", 3)
    for number in range(10):
        await ask(http, server, scope=str(number))
    assert len(http._tokens) == 3


async def test_a_registry_may_want_name_and_password_itself(
    http: RegistryHttp, server: Server
) -> None:
    server.challenge, server.accepts = 'Basic realm="x"', lambda header: header == BASIC
    with pytest.raises(UnusableError, match="log-in"):
        await ask(http, server)
    assert (await ask(http, server, username="robot", password="s3cret")).status == 200
    assert (await ask(http, server, username="robot", password="wrong")).status == 401


@pytest.mark.parametrize(
    "token",
    [
        {},
        {"token": 7},
        {"token": ""},
        {"token": "a\r\nX-Evil: 1"},
        {"token": "ü"},
        {"token": "t", "expires_in": "soon"},
        {"token": "t" * 70000},
    ],
)
async def test_an_answer_that_is_no_token_is_of_no_use(
    http: RegistryHttp, server: Server, token: dict[str, Any]
) -> None:
    server.token = token
    with pytest.raises(UnusableError):
        await ask(http, server)
    assert server.paths == ["/v2/x", "/token"]


async def test_a_token_service_that_fails_is_told(http: RegistryHttp, server: Server) -> None:
    server.token_status = 500
    with pytest.raises(UnusableError, match="token service answered 500"):
        await ask(http, server)


async def test_an_answer_is_read_up_to_its_bound(http: RegistryHttp, server: Server) -> None:
    server.accepts = lambda _: True
    endpoint = Endpoint(server.address)
    with pytest.raises(UnusableError, match="larger than 3 bytes"):
        await http.ask(endpoint, "GET", "/v2/x", scope=SCOPE, max_bytes=3)


# -- where we are not sent -----------------------------------------------------------------------


class Canary:
    """A listener that nobody may connect to."""

    def __init__(self) -> None:
        self.connections = 0
        self.port = 0

    async def start(self, stack: AsyncExitStack) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        stack.push_async_callback(server.wait_closed)
        stack.callback(server.close)
        self.port = server.sockets[0].getsockname()[1]

    async def _accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


HOSTILE_REALMS = [
    "",
    "/token",
    "token",
    "//127.0.0.1:{canary}/token",
    "http://127.0.0.1:{canary}/token",
    "https://127.0.0.1:{canary}/token",
    "http://localhost:{canary}/token",
    "http://127.1:{canary}/token",
    "http://2130706433:{canary}/token",
    "http://0x7f000001:{canary}/token",
    "http://0177.0.0.1:{canary}/token",
    "http://0.0.0.0:{canary}/token",
    "http://[::1]:{canary}/token",
    "http://[::ffff:127.0.0.1]:{canary}/token",
    "http://127.0.0.1.:{canary}/token",
    "http://{address}@127.0.0.1:{canary}/token",
    "http://127.0.0.1:{canary}#@{address}/token",
    "http://127.0.0.1:{canary}?@{address}/token",
    "http://127.0.0.1:{canary}\\@{address}/token",
    "http://{address}.evil.example:{canary}/token",
    "http://169.254.169.254/latest/meta-data/",
    "https://{address}/token",
    "ftp://{address}/token",
    "file:///etc/passwd",
    "unix:///run/docker.sock",
    "gopher://127.0.0.1:{canary}/_x",
    "javascript:alert(1)",
    "http://[bad/token",
    "http://{address}:99999/token",
    "http:///token",
    "http://127.0.0.1:{canary}\r\nHost: {address}",
]


@pytest.mark.parametrize("realm", HOSTILE_REALMS)
async def test_a_realm_elsewhere_is_not_gone_to(
    http: RegistryHttp, server: Server, stack: AsyncExitStack, realm: str
) -> None:
    canary = Canary()
    await canary.start(stack)
    realm = realm.format(address=server.address, canary=canary.port)
    challenge = f'Bearer realm="{realm}",service="x"'.replace("\r\n", "%0d%0a")
    server.challenge = challenge.replace("{", "{{").replace("}", "}}")
    with pytest.raises(UnusableError):
        await ask(http, server, username="robot", password="s3cret")
    assert canary.connections == 0
    assert server.paths == ["/v2/x"]


async def test_a_realm_that_the_operator_named_is_gone_to(
    http: RegistryHttp, server: Server, stack: AsyncExitStack
) -> None:
    service = Server()
    await service.start(stack)
    server.given = service.given
    server.challenge = f'Bearer realm="http://{service.address}/token"'
    with pytest.raises(UnusableError):
        await ask(http, server)
    assert service.asked == []
    assert (await ask(http, server, auth_hosts=(service.address,))).status == 200
    assert service.asked == [("/token", {"scope": SCOPE}, "")]


def test_realms_are_compared_as_origins() -> None:
    hub = Endpoint("registry-1.docker.io", auth_hosts=("auth.docker.io",))
    for realm in ("https://auth.docker.io/token", "https://AUTH.docker.io:443/token"):
        assert _checked_realm(hub, realm).host == "auth.docker.io"
    for realm in (
        "http://auth.docker.io/token",
        "https://auth.docker.io:8443/token",
        "https://auth.docker.io.evil.example/token",
        "https://evil-auth.docker.io/token",
        "https://docker.io/token",
    ):
        with pytest.raises(UnusableError):
            _checked_realm(hub, realm)
    assert _checked_realm(hub, "https://user:pass@auth.docker.io/token#x").user is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(
    http: RegistryHttp, server: Server, stack: AsyncExitStack, status: int
) -> None:
    canary = Canary()
    await canary.start(stack)

    async def redirect(request: web.Request) -> web.Response:
        location = f"http://127.0.0.1:{canary.port}/"
        return web.Response(status=status, headers={"Location": location})

    server._registry = redirect  # type: ignore[method-assign]  # before it is mounted
    await server.start(stack)
    assert (await ask(http, server)).status == status
    assert canary.connections == 0


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("1.1.1.1", True),
        ("2606:4700:4700::1111", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:1.1.1.1", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::101:101", True),
    ],
)
def test_public_addresses_are_told_from_others(address: str, public: bool) -> None:
    assert is_public(address) is public


async def test_a_name_with_an_address_that_is_not_public_is_not_gone_to(
    http: RegistryHttp, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = Canary()
    await canary.start(stack)
    names = {"rebound.example": ["1.1.1.1", "127.0.0.1"], "inner.example": ["127.0.0.1"]}

    async def resolve(_: object, host: str, port: int = 0, family: int = 0) -> list[Any]:
        return [
            {
                "hostname": host,
                "host": ip,
                "port": port,
                "family": 2,
                "proto": 0,
                "flags": 0,
            }
            for ip in names[host]
        ]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    for name in names:
        endpoint = Endpoint(f"{name}:{canary.port}")
        with pytest.raises(aiohttp.ClientError):
            await http.ask(endpoint, "GET", "/v2/x", scope=SCOPE, max_bytes=100)
    assert canary.connections == 0
    # The operator may say that a registry is within the own network.
    endpoint = Endpoint(f"inner.example:{canary.port}", private=True)
    with pytest.raises(aiohttp.ClientError):
        await http.ask(endpoint, "GET", "/v2/x", scope=SCOPE, max_bytes=100)
    assert canary.connections == 1


def test_credentials_are_not_shown() -> None:
    assert "s3cret" not in repr(Endpoint("ghcr.io", "robot", "s3cret"))
