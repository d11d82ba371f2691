"""How operator commands fail: at the connection, by the answer, the address, the token and TLS."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import Result

from controlplane.cli.api import Api, ApiError, is_in_clear
from controlplane.domain.access import tokens
from tests.controlplane.operator_commands import Commands
from tests.controlplane.test_served_certificate import Files
from tests.support.controlplane.system import System

LIST = ("GET", "/operator/region")
REGION = {"name": "eu", "declared": True, "agents": 0, "applications": 0}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Commands]:
    async with Commands() as running:
        running.folder = tmp_path
        yield running


def assert_fails(result: Result, *parts: str, code: int = 1) -> None:
    """Check that the command failed with one line of error and no output."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    if code == 1:
        assert result.stderr.startswith("cannot list regions: ")
        assert result.stderr.count("\n") == 1
    for part in parts:
        assert part in result.stderr


async def test_reports_a_closed_connection(api: Commands) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert_fails(await api.regions("--url", f"http://127.0.0.1:{port}"), "cannot be reached")


async def test_reports_an_invalid_host_name(api: Commands) -> None:
    assert_fails(await api.regions("--url", "https://a..b:1"), "cannot be reached")


async def test_reports_a_timeout(api: Commands) -> None:
    unblocked = asyncio.Event()
    api.before = unblocked.wait
    client = Api(api.url, api.token, ssl.create_default_context(), as_json=False)
    with pytest.raises(ApiError, match=r"did not answer within 0\.05 s"):
        await asyncio.to_thread(client.call, "GET", "operator", "region", timeout=0.05)
    unblocked.set()


@pytest.mark.parametrize(
    ("status", "text", "reported"),
    [
        (502, "<html>bad gateway", "answered 502 without JSON"),
        (200, "\udcff", "answered 200 without JSON"),
        (500, '{"details": "x", "violations": 1}', "answered 500"),
        (302, "{}", "answered 302"),
        (200, "[]", "this version does not know the format"),
        (200, '{"regions": [{}]}', "this version does not know the format"),
        (403, '{"details": "no \\u001b[31mway"}', r"no \x1b[31mway"),
    ],
)
async def test_reports_an_unexpected_response(
    api: Commands, status: int, text: str, reported: str
) -> None:
    body = text.encode("utf-8", "surrogateescape")
    headers = {"Location": f"{api.url}/elsewhere"}
    api.answers[LIST] = lambda: web.Response(status=status, body=body, headers=headers)
    assert_fails(await api.regions(), reported)
    assert [path for _, path, _ in api.requests] == ["/operator/region"]


async def test_control_characters_are_escaped(api: Commands) -> None:
    evil = "\x1b]0;x\x07\r\n\u202e\ud800\x9b31m"
    api.answers[LIST] = {"regions": [REGION | {"name": evil}]}
    shown = (await api.regions()).stdout
    assert shown.splitlines()[1].startswith(r"\x1b]0;x\x07\r\n\u202e\ud800\x9b31m  yes")
    assert all(character.isprintable() for character in shown.replace("\n", ""))
    printed = (await api.regions("--json")).stdout
    assert json.loads(printed)["regions"][0]["name"] == evil
    assert printed.isascii()


async def test_prints_one_violation_per_line(api: Commands) -> None:
    violations = [{"field": "a", "description": "x\n"}, {"field": "b", "description": "y"}]
    body = {"message": "invalid request", "details": "a: x; b: y", "violations": violations}
    api.answers["PUT", "/operator/region/eu"] = lambda: web.json_response(body, status=422)
    result = await api.run("region create eu")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "cannot create the region: invalid request\n  a: x\\n\n  b: y\n"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "ftp://h",
        "https://",
        "https://u:p@h",
        "https://h?x",
        "https://h#x",
        "https://h:x",
    ],
)
async def test_rejects_an_invalid_url(api: Commands, url: str) -> None:
    reported = await api.regions("--url", url, "--insecure")
    assert_fails(reported, "Invalid value for '--url'", code=2)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("[::1]", True),
        ("LOCALHOST", True),
        ("192.0.2.1", False),
        ("0.0.0.0", False),
        ("[::]", False),
        ("[2001:db8::1]", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("127.1", False),
    ],
)
def test_detects_unencrypted_urls(host: str, loopback: bool) -> None:
    for port in ("", ":8080"):
        assert is_in_clear(f"http://{host}{port}/x") != loopback
        assert not is_in_clear(f"https://{host}{port}/x")


async def test_sends_no_token_unencrypted_to_another_machine(api: Commands) -> None:
    api.answers[LIST] = {"regions": []}
    url = api.url.replace("127.0.0.1", "0.0.0.0")  # also reaches this machine
    refused = await api.regions("--url", url)
    assert_fails(refused, "Invalid value for '--url'", "in clear", "https://", code=2)
    assert not api.requests
    for arguments in (("--url", url, "--insecure"), ("--insecure", "--url", url)):
        allowed = await api.regions(*arguments)
        assert allowed.exit_code == 0
        assert allowed.stderr == f"warning: the token is sent in clear text to {url}\n"
    assert (await api.regions("--insecure")).stderr == ""


# ---- the token


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        pytest.param(None, "No such file", id="none"),
        ("", "contains no token"),
        pytest.param(2 * f"{tokens.mint().text}\n", "contains no token", id="two"),
        pytest.param(tokens.mint().text[:-1], "contains no token", id="cut"),
        ("\udcff", "contains no token"),
        ("{}", "contains no token"),
        ('{"operator_token": "x"}', "contains no token"),
    ],
)
async def test_rejects_a_file_without_a_token(
    api: Commands, tmp_path: Path, content: str | None, reported: str
) -> None:
    file = tmp_path / "other"
    if content is not None:
        file.write_bytes(content.encode("utf-8", "surrogateescape"))
    result = await api.regions("--token-file", str(file))
    assert_fails(result, reported, str(file), "--token-file")
    assert not content or content not in result.stderr
    assert not api.requests


async def test_accepts_a_path_before_that_of_the_api(api: Commands) -> None:
    api.answers["GET", "/tiltyard/operator/region"] = {"regions": []}
    for end in ("", "/"):
        assert (await api.regions("--url", f"{api.url}/tiltyard{end}")).exit_code == 0


async def test_accepts_the_token_file_of_the_first_start(api: Commands, tmp_path: Path) -> None:
    api.answers[LIST] = {"regions": []}
    file = tmp_path / "initial-tokens.json"
    file.write_text(json.dumps({"accounts": {"default": "x"}, "operator_token": api.token}))
    assert (await api.regions("--token-file", str(file))).exit_code == 0


# ---- TLS


async def test_tls(api: Commands, tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.make()
    names = files.settings
    async with System(tmp_path, agents=0, **names) as system:
        file = tmp_path / "token"
        file.write_text(system.operator_token)
        more = ("--url", system.control_plane.base_url, "--token-file", str(file))
        assert_fails(await api.regions(*more), "no TLS connection", "certificate verify failed")
        trusting = await api.regions(*more, "--ca-file", names["tls_certificate"])
        assert trusting.exit_code == 0, trusting.output
        for bad in (names["tls_key"], str(tmp_path / "none")):
            assert_fails(await api.regions(*more, "--ca-file", bad), bad, "--ca-file")
    plain = await api.regions("--url", f"https{api.url[4:]}")
    assert_fails(plain, "no TLS connection", "wrong version number")
    assert "SSLContext" not in plain.output
