"""Connections: deadlines, caps, TLS, proxies, and what aiohttp refuses."""

import asyncio
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from controlplane.http.limits import Limits
from controlplane.settings.model import Config, load_config
from tests.controlplane.test_served_certificate import Files, Tls
from tests.support.controlplane.commands import finished
from tests.support.controlplane.raw_http import RawAnswer, Wire, assert_documented
from tests.support.controlplane.system import System, eventually
from tiltyard.runtime.settings import SettingsError

SHORT = 0.15
LONG = 15.0
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


class Limited(Tls):
    """A system with these limits of its connections, in seconds."""

    LIMITS: ClassVar = dict.fromkeys(("header", "body", "unread", "idle", "stall"), LONG) | {
        "linger": 0.2
    }

    def __init__(self, folder: Path, **settings: Any) -> None:
        limits = {name: settings.pop(name, limit) for name, limit in self.LIMITS.items()}
        super().__init__(folder, **settings)
        self.parts["limits"] = Limits(**limits)


def limited(**arguments: Any) -> pytest.MarkDecorator:
    return pytest.mark.system(kind=Limited, **arguments)


pytestmark = limited()


@pytest.fixture
async def wire(system: System) -> AsyncIterator[Wire]:
    async with Wire(system.port) as wire:
        yield wire


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Any]:
    """Make a certificate; return the settings that name it."""
    files = Files(tmp_path)
    files.make()
    return files.settings


@pytest.fixture
def client(tls: dict[str, Any]) -> ssl.SSLContext:
    """A TLS client that trusts that certificate."""
    return ssl.create_default_context(cafile=tls["tls_certificate"])


def request(system: System, target: str, *more: str, method: str = "GET") -> bytes:
    head = [f"{method} {target} HTTP/1.1", "Host: a", *more]
    head.append(f"Authorization: Bearer {system.tokens['alice']}")
    return "\r\n".join([*head, "", ""]).encode()


async def ask_health(wire: Wire) -> None:
    wire.send(HEALTH)
    assert (await wire.read_answer()).status == 200


def refused(answer: RawAnswer | None, status: int, path: str) -> Any:
    assert answer is not None
    assert answer.status == status, answer.body
    assert_documented(answer)
    assert answer.json["path"] == path
    return answer.json


def test_headers_have_10_seconds_and_bodies_30() -> None:
    assert Limits().header == 10
    assert Limits().body == 30


@limited(header=SHORT)
@pytest.mark.parametrize(
    ("sent", "slowly"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\nHost", b""),
        (b"GET / HTTP/1.1\r\nX: ", b"x"),
    ],
)
async def test_absent_unfinished_and_slow_headers_have_a_deadline(
    system: System, sent: bytes, slowly: bytes
) -> None:
    began = time.monotonic()
    async with Wire(system.port) as wire:
        wire.send(sent)
        ending = asyncio.create_task(wire.ends())
        while not ending.done():
            wire.send(slowly)
            await asyncio.wait({ending}, timeout=0.02)
        assert ending.result() == b""
    assert time.monotonic() - began > SHORT / 2


@limited(header=2.25)
async def test_requests_that_arrive_whole_need_no_timer(
    system: System, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not, also a later one, has the deadline."""
    loop = asyncio.get_running_loop()
    timers = list[float]()
    later = loop.call_later

    def call_later(delay: float, *rest: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(delay)
        return later(delay, *rest, **more)

    monkeypatch.setattr(loop, "call_later", call_later)
    for _ in range(3):
        await ask_health(wire)
    at_first = timers.count(2.25)
    await ask_health(wire)
    assert timers.count(2.25) == at_first
    wire.send(HEALTH[:20])
    await eventually(lambda: timers.count(2.25) == at_first + 1)
    assert await wire.ends() == b""


@limited(idle=SHORT)
async def test_an_idle_connection_is_closed(system: System, wire: Wire) -> None:
    await ask_health(wire)
    assert await wire.ends() == b""


@limited(body=SHORT)
@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked"])
async def test_a_body_has_a_deadline(system: System, wire: Wire, framing: str) -> None:
    wire.send(request(system, "/session", framing, method="POST"))
    answer = asyncio.create_task(wire.answer())
    while not answer.done():
        wire.send(b"1\r\n \r\n"[: 1 if "Length" in framing else 6])
        await asyncio.wait({answer}, timeout=0.02)
    assert "was not received" in refused(answer.result(), 400, "/session")["details"]
    wire.writer.write_eof()
    await wire.ends()


@pytest.mark.parametrize("bad", [b"ZZ\r\n", b"5\r\nabcdeXX", b"-1\r\n", b"1;\n"])
async def test_a_bad_chunk_is_answered_at_once(system: System, wire: Wire, bad: bytes) -> None:
    framing = ("Transfer-Encoding: chunked", "Expect: 100-continue")
    wire.send(request(system, "/session", *framing, method="POST"))
    assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.send(bad)
    assert refused(await wire.answer(), 400, "/session")["details"] == "the body is malformed"
    assert await wire.ends() == b""


@limited(application={}, session="s")
async def test_long_answers_have_no_deadline(system: System) -> None:
    system.parts["limits"] = Limits(header=SHORT, body=SHORT, idle=SHORT, stall=SHORT)
    await system.restart()
    async with Wire(system.port) as wire:
        wire.send(request(system, "/logs?id=s&follow=true"))
        assert b"line 1\n" in await wire.reader.readuntil(b"line 2\n")
        for _ in range(4):
            async with Wire(system.port) as other:
                assert await other.ends() == b""
        system.agent.log.ended.set()
        assert (await wire.reader.readuntil(b"0\r\n\r\n")).endswith(b"0\r\n\r\n")


class Flood:
    """An endless log; counts the bytes that were read until reading ends."""

    def __init__(self) -> None:
        self.given = 0
        self.ended = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            while True:
                self.given += 2**18
                yield bytes(2**18)
        finally:
            self.ended = True


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_stalled_reader_uses_little_memory_and_is_disconnected(
    tmp_path: Path, tls: dict[str, Any], client: ssl.SSLContext, *, encrypted: bool
) -> None:
    settings, trusting = (tls, client) if encrypted else ({}, None)
    async with (
        Limited(tmp_path, stall=2 * SHORT, **settings) as system,
        Wire(system.port, trusting) as wire,
    ):
        await system.make_application()
        assert (await system.start(id="s")).status == 201
        system.agent.logs = flood = Flood()  # type: ignore[assignment]
        wire.send(request(system, "/logs?id=s&follow=true"))
        await wire.reader.readuntil(b"\r\n\r\n")
        cast("asyncio.Transport", wire.writer.transport).pause_reading()
        await eventually(lambda: flood.ended)
        assert flood.given < 2**26


@limited(stall=20 * SHORT, application={}, session="s")
async def test_a_slow_reader_gets_everything(system: System, wire: Wire) -> None:
    """It takes longer than a reader may stall, and a small part of that for each read."""
    system.agent.logs = [bytes(2**18)] * 128
    wire.send(request(system, "/logs?id=s"))
    began = time.monotonic()
    answer = bytearray()
    while not answer.endswith(b"0\r\n\r\n"):
        part = await wire.reader.read(2**18)
        assert part, "the reader was disconnected"
        answer += part
        await asyncio.sleep(SHORT / 5)
    assert len(answer) > 2**25
    assert time.monotonic() - began > 20 * SHORT


@limited(linger=LONG)
async def test_a_refusal_arrives_while_the_client_still_sends(system: System, wire: Wire) -> None:
    wire.send(b"GET /here?a=secret HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 2**21)
    assert "8190" in refused(await wire.answer(), 400, "/here")["details"]
    assert await wire.ends() == b""


async def test_a_pipelined_refusal_comes_after_earlier_answers(system: System, wire: Wire) -> None:
    await ask_health(wire)
    wire.send(b"GET /next HTTP/1.1\r\nHost : a\r\n\r\n" + HEALTH)
    refused(await wire.answer(), 400, "/next")
    assert await wire.ends() == b""


async def gets_in(system: System, tls: ssl.SSLContext | None = None, *headers: str) -> bool:
    async with Wire(system.port, tls) as wire:
        wire.send(request(system, "/session", *headers))
        answer = await wire.answer()
        return answer is not None and answer.status == 200


@limited(max_connections=3, max_connections_per_address=2)
async def test_caps_count_open_connections_and_close_further_ones(system: System) -> None:
    async with Wire(system.port) as first, Wire(system.port) as second:
        async with Wire(system.port) as third:
            assert await third.ends() == b""
        for wire in (first, second):
            await ask_health(wire)
    for _ in range(5):
        await eventually(partial(gets_in, system))


async def test_a_stalled_handshake_counts_and_times_out(
    tmp_path: Path, tls: dict[str, Any], client: ssl.SSLContext
) -> None:
    async with Limited(tmp_path, header=3.0, max_connections_per_address=2, **tls) as system:
        async with Wire(system.port) as quiet, Wire(system.port) as plain:
            async with Wire(system.port) as third:
                assert await third.ends() == b""
            plain.send(HEALTH)
            await plain.ends()
            assert await quiet.ends() == b""
        await eventually(partial(gets_in, system, client))


async def test_tls_requires_version_1_2(
    tmp_path: Path, tls: dict[str, Any], client: ssl.SSLContext
) -> None:
    async with Limited(tmp_path, **tls) as system:
        assert system.control_plane.base_url.startswith("https://127.0.0.1:")
        assert (await system.call("GET", "/session")).json == {"sessions": []}
        async with Wire(system.port, client) as wire:
            assert wire.writer.get_extra_info("ssl_object").version() == "TLSv1.3"
            wire.send(b"GET /\x00 HTTP/1.1\r\n\r\n")
            refused(await wire.answer(), 400, "/")
        address = f"127.0.0.1:{system.port}"
        for version, cipher in (("-tls1_1", "(NONE)"), ("-tls1_2", "ECDHE")):
            command = f"openssl s_client {version} -cipher ALL:@SECLEVEL=0 -connect {address}"
            assert f"Cipher is {cipher}" in (await finished(*command.split()))[1]


def test_an_unusable_certificate_is_named(tmp_path: Path, tls: dict[str, Any]) -> None:
    settings = tmp_path / "controlplane.toml"

    def load(certificate: str, key: str) -> Config:
        lines = {"tls_certificate": certificate, "tls_key": key, "api_listen": "0.0.0.0:443"}
        settings.write_text("".join(f'{k} = "{v}"\n' for k, v in lines.items()))
        return load_config(settings, {})

    certificate = tls["tls_certificate"]
    key = tls["tls_key"]
    assert load(certificate, key).tls_key == key
    protected = str(tmp_path / "protected.pem")
    encrypt = f"openssl ec -in {key} -aes256 -passout pass:x -out {protected}"
    subprocess.run(encrypt.split(), check=True, capture_output=True)
    for bad in ((certificate, str(tmp_path / "none")), (key, key), (certificate, protected)):
        with pytest.raises(SettingsError, match="tls_certificate: cannot load"):
            load(*bad)


@limited(behind_proxy=("127.0.0.1",), max_connections_per_address=1, application={}, session="s")
async def test_behind_a_proxy_the_cap_counts_per_caller(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "controlplane.http")
    async with Wire(system.port) as follower, Wire(system.port) as other:
        forwarded = "X-Forwarded-For: 6.6.6.6, 1.1.1.1"
        follower.send(request(system, "/logs?id=s&follow=true", forwarded))
        await follower.reader.readuntil(b"line 2\n")
        other.send(request(system, "/session/x", "X-Forwarded-For: 2.2.2.2"))
        refused(await other.answer(), 404, "/session/x")
        other.send(request(system, "/session", forwarded))
        refused(await other.answer(), 503, "/session")
    await eventually(partial(gets_in, system, None, forwarded))
    assert "address=2.2.2.2 status=404" in caplog.text
    assert "address=1.1.1.1 status=503" in caplog.text
    assert "6.6.6.6" not in caplog.text
