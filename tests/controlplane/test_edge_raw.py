"""Malformed requests: none gets a 500 or an undocumented answer."""

import itertools

import pytest

from tests.controlplane.test_edge import limited
from tests.support.controlplane.raw_http import RawAnswer, Wire, ask, assert_documented
from tests.support.controlplane.system import System

SHORT = 0.3
BODY = b'{"location": "local", "image": "game"}'

TARGETS = (
    b"/",
    b" /session",
    b"\x00",
    b"/\x01",
    b"/%00",
    b"/%ff%fe",
    b"/session/%2f%2e%2e",
    b"/../../etc/passwd",
    b"//session",
    b"http://other/session",
    b"http://[::1",
    b"*",
    b"/?" + b"a" * 9000,
    b"/" + b"a" * 7000,
    b"/session?a=%zz&b=%u0041",
    b"/session#fragment",
)
LINES = [
    *(b"GET " + target + b" HTTP/1.1" for target in TARGETS),
    b"GET / HTTP/0.9",
    b"GET / HTTP/1.0",
    b"GET / HTTP/2.0",
    b"GET / HTTP/x.y",
    b"get / HTTP/1.1",
    b"G\x80T / HTTP/1.1",
    b"PATCH /session HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"CONNECT other:443 HTTP/1.1",
    b"GET /session",
    b"GET",
    b"",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]
HEADERS = [
    b"",
    b"Host",
    b": empty",
    b"Host : a",
    b" Host: a",
    b"X: a\r\n b",
    b"X: a\nY: b",
    b"X: a\x00b",
    b"X: \xff\xfe",
    b"X\x80: a",
    b"X: " + b"a" * 9000,
    b"\r\n".join(b"X%d: a" % number for number in range(200)),
    b"Host: a\r\nHost: b",
    b"Authorization: Bearer a\r\nAuthorization: Bearer b",
    b"Authorization: Bearer " + b"a" * 4000,
    b"Expect: 100-continue",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Content-Length: +5",
    b"Content-Length: -1",
    b"Content-Length: \xb2",
    b"Content-Length: " + b"9" * 23,
    b"Content-Length: 2000000",
    b"Content-Encoding: gzip",
    b"Content-Type: text/plain\r\nContent-Length: 2",
    b"X-Forwarded-For: 1.1.1.1, \xff",
]
BODIES = [
    b"",
    b"{}",
    b"null",
    b"\xff",
    b"[" * 5000,
    b"5\r\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\n",
    b"0\r\nTrailer: x\r\n\r\n",
    BODY,
    BODY + BODY,
    b"x" * 70000,
]


def requests() -> list[bytes]:
    made = [line + b"\r\nHost: a\r\n\r\n" for line in LINES]
    made += [line + b"\nHost: a\n\n" for line in LINES]
    for header, method in itertools.product(
        HEADERS, (b"GET /healthz", b"POST /session", b"DELETE /session/x")
    ):
        made.append(method + b" HTTP/1.1\r\nHost: a\r\n" + header + b"\r\n\r\n")
    framings = (
        b"Content-Length: %d",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: %d",
        b"X: %d",
    )
    for body, framing in itertools.product(BODIES, framings):
        head = framing % len(body) if b"%d" in framing else framing
        made.append(b"POST /session HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n\r\n" + body)
    return made


pytestmark = limited(body=SHORT, idle=SHORT, linger=0.05)


async def answered(system: System, data: bytes) -> RawAnswer:
    """Send a request; return the answer, which each of them gets, however malformed it is."""
    answer = await ask(system.port, data)
    assert answer is not None, data
    assert_documented(answer, body=not data.startswith(b"HEAD"))
    return answer


@pytest.mark.parametrize("with_token", [False, True])
async def test_bad_requests_get_documented_answers(system: System, *, with_token: bool) -> None:
    """The API reads bodies, looks up ids and parses queries only for requests with a token."""
    token = f"X: y\r\nAuthorization: Bearer {system.tokens['alice']}\r\n".encode()
    added = token if with_token else b""
    statuses = set()
    for data in requests():
        answer = await answered(system, data.replace(b"Host: a\r\n", b"Host: a\r\n" + added, 1))
        statuses.add(answer.status)
    assert {200, 400, 401, 404, 405} <= statuses
    if with_token:
        assert {413, 422} <= statuses
    assert (await system.call("GET", "/session")).status == 200


@pytest.mark.system
@pytest.mark.parametrize(
    "data",
    [
        b"QUOTED /a HTTP/1.1\r\n\r\n",
        b"GET /a HTTP/QUOTED\r\n\r\n",
        b"GET /a?QUOTED\x01 HTTP/1.1\r\n\r\n",
        b"GET /a?QUOTED" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"GET /a HTTP/1.1\r\nQUOTED : a\r\n\r\n",
        b"GET /a HTTP/1.1\r\nX: QUOTED\x00\r\n\r\n",
        b"GET /a HTTP/1.1\r\nX: QUOTED" + b"x" * 9000 + b"\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a\r\nExpect: QUOTED\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: QUOTED\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: QUOTED\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nQUOTED\r\n",
    ],
)
async def test_a_refusal_names_the_path_and_quotes_nothing(
    system: System, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    answer = await answered(system, data)
    assert answer.status == 400
    assert answer.headers["connection"] == "close"
    assert answer.json["path"] == "/a"
    assert b"QUOTED" not in answer.body
    assert answer.json["identifier"] in caplog.text
    assert "QUOTED" not in caplog.text


@pytest.mark.parametrize("version", [b"0.9", b"1.2", b"2.0", b"9.9"])
async def test_other_versions_of_http_are_refused(system: System, version: bytes) -> None:
    answer = await answered(system, b"GET /healthz HTTP/" + version + b"\r\nHost: a\r\n\r\n")
    assert answer.status == 400
    assert answer.json["path"] == "/healthz"


async def test_a_disconnect_during_the_body_is_no_error(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    head = ["POST /session HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 40"]
    token = f"Authorization: Bearer {system.tokens['alice']}"
    async with Wire(system.port) as wire:
        wire.send("\r\n".join([*head, token, "", "{"]).encode())
        assert b" 100 " in await wire.reader.readuntil(b"\r\n\r\n")
    await system.stop_serving()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
