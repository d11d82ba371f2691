"""Where hostile registries cannot send the client, and what reports of failures contain."""

import asyncio
import base64
import socket
from contextlib import AsyncExitStack
from typing import Any
from unittest import mock

import pytest

from controlplane.registries.endpoint import Endpoint, UnusableError
from controlplane.registries.http import RegistryHttp
from controlplane.registries.login import checked_realm
from tests.unit.controlplane.registries.login_server import LOGIN, SCOPE, Server, ask, listen


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


@pytest.fixture
async def service(http: RegistryHttp, server: Server, stack: AsyncExitStack) -> Server:
    """Another host, which the registry names for the login."""
    service = Server(http)
    await service.start(stack)
    server.given = service.given
    server.challenge = f'Bearer realm="http://{service.address}/token"'
    return service


async def test_does_not_log_in_at_another_host(server: Server, service: Server) -> None:
    with pytest.raises(UnusableError):
        await server.ask(**LOGIN)
    assert service.asked == []
    assert server.paths == ["/v2/x"]


async def test_logs_in_at_a_host_of_auth_hosts(server: Server, service: Server) -> None:
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

    monkeypatch.setattr("controlplane.registries.resolver.look_up", look_up)
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
