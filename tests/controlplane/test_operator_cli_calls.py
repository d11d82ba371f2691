"""Operator commands against a server that records calls and answers anything."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from click.testing import Result

from controlplane.cli.api import CALL_TIMEOUT, Api, ApiError, is_in_clear
from controlplane.domain import tokens
from tests.controlplane.test_operator_cli import cells, run
from tests.controlplane.test_served_certificate import Files
from tests.support.controlplane.stub_api import StubApi
from tests.support.controlplane.system import System

LIST = ("GET", "/operator/region")
REGION = {"name": "eu", "declared": True, "agents": 0, "applications": 0}
POOL = "--size 5 --claim-signal SIGUSR1 --env A=1=2 --env B= --arg=--map --label k=v --disabled"
CALLS: dict[str, tuple[str, str, Any]] = {
    f"warm-pool set g/1 eu {POOL}": (
        "PUT",
        "/warm-pool/g%2F1/eu",
        {"size": 5, "enabled": False, "env": {"A": "1=2", "B": ""}}
        | {"args": ["--map"], "labels": {"k": "v"}, "claimSignal": "SIGUSR1"},
    ),
    "warm-pool delete g/1 eu": ("DELETE", "/warm-pool/g%2F1/eu", None),
    "agent token --region eu --node-pool big": (
        "POST",
        "/operator/enrolment-token",
        {"region": "eu", "nodePool": "big"},
    ),
    "agent token --agent a/0": ("POST", "/operator/agent/a%2F0/token", None),
    "agent undrain a/0": ("DELETE", "/operator/agent/a%2F0/drain", None),
    "agent revoke a/0 --yes": ("POST", "/operator/agent/a%2F0/revoke", None),
    "authority rotate": ("POST", "/operator/authority/rotate", {"compromised": False}),
    "authority rotate --compromised --yes": (
        "POST",
        "/operator/authority/rotate",
        {"compromised": True},
    ),
    "authority finish --force --yes": ("POST", "/operator/authority/finish", {"force": True}),
}


class Commands(StubApi):
    """Runs commands against itself."""

    folder: Path

    async def run(self, command: str, *more: str) -> Result:
        arguments = (*command.split(), *more)
        return await run(*arguments, url=self.url, token_file=self.token_file(self.folder))

    async def shown(self, command: str) -> list[str]:
        """Run a command that succeeds; return the lines of its output."""
        result = await self.run(command)
        assert result.exit_code == 0, result.stderr
        return result.stdout.splitlines()

    async def regions(self, *options: str) -> Result:
        return await self.run("region list", *options)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Commands]:
    async with Commands() as running:
        running.folder = tmp_path
        yield running


@pytest.mark.parametrize("command", CALLS)
async def test_command_makes_one_call(api: Commands, command: str) -> None:
    method, path, body = CALLS[command]
    api.answers[method, unquote(path)] = {}
    result = await api.run(command, "--json")
    assert result.exit_code == 0, result.stderr
    assert api.requests == [(method, path, body)]


@pytest.mark.parametrize(
    "command",
    [
        "agent token",
        "agent token --region eu --agent a0",
        "agent token --agent a0 --node-pool big",
        "warm-pool set g eu --size 1 --env A",
        "agent revoke a0",
        "authority rotate --compromised",
        "authority finish --force",
        "account quota a",
        "account quota a --cpu nothing",
        "account quota a --cpu=-1",
    ],
)
async def test_incomplete_command_makes_no_call(api: Commands, command: str) -> None:
    """Some need a confirmation, without a terminal."""
    result = await api.run(command)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert api.requests == []


@pytest.mark.parametrize(
    ("options", "quota"),
    [
        ("--sessions 200", {"sessions": 200, "cpu": 2.5, "ram": 512.0, "gpu": 1}),
        ("--cpu none", {"sessions": 4, "cpu": None, "ram": 512.0, "gpu": 1}),
        ("--ram 0 --sessions none", {"sessions": None, "cpu": 2.5, "ram": 0.0, "gpu": 1}),
    ],
)
async def test_quota_keeps_limits_that_are_not_given(
    api: Commands, options: str, quota: dict[str, float | None]
) -> None:
    """Also a limit that this version does not know."""
    old = {"sessions": 4, "cpu": 2.5, "ram": 512.0, "gpu": 1}
    accounts = [{"name": "b", "quota": {}}, {"name": "a", "quota": old}]
    api.answers["GET", "/operator/account"] = {"accounts": accounts}
    assert (await api.run(f"account quota a {options}")).exit_code == 0
    assert api.requests[1:] == [("PUT", "/operator/account/a", {"quota": quota})]


async def test_quota_of_an_unknown_account_is_an_error(api: Commands) -> None:
    api.answers["GET", "/operator/account"] = {"accounts": [{"name": "b", "quota": {}}]}
    result = await api.run("account quota unknown --cpu 1")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "cannot find account 'unknown'" in result.stderr
    assert [method for method, _, _ in api.requests] == ["GET"]


async def test_lists_warm_pools(api: Commands) -> None:
    pool = {"image": "game", "location": "eu", "size": 3, "ready": 2, "enabled": True}
    settings = {"env": {"A": "1"}, "args": [], "labels": {}, "claimSignal": "SIGHUP"}
    api.answers["GET", "/warm-pool"] = {"warmPools": [pool | settings]}
    result = await api.run("warm-pool list")
    assert result.exit_code == 0, result.stderr
    head, row = cells(result.stdout)
    assert head[:5] == ["IMAGE", "LOCATION", "SIZE", "READY", "ENABLED"]
    assert head[5:] == ["ENV", "ARGS", "LABELS", "CLAIM SIGNAL"]
    assert row == ["game", "eu", "3", "2", "yes", '{"A": "1"}', "-", "-", "SIGHUP"]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("--region eu", "/operator/enrolment-token"),
        ("--agent a/0", "/operator/agent/a/0/token"),
    ],
)
async def test_the_token_of_a_host_is_printed_alone(
    api: Commands, options: str, path: str
) -> None:
    made = {"id": "0123456789abcdef", "token": "ty_for_one_host", "expires": 1767226500000}
    api.answers["POST", path] = made
    result = await api.run(f"agent token {options}")
    assert result.exit_code == 0
    assert result.stdout == "ty_for_one_host\n"


async def test_json_of_a_new_token_has_no_remark(api: Commands) -> None:
    made = {"id": "0123456789abcdef", "token": "ty_new"}
    api.answers["POST", "/operator/token"] = made
    result = await api.run("token create x --scope operator:read --json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == made
    assert result.stderr == ""


async def test_a_stop_waits_longer_than_other_calls(
    api: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float] = []

    def record(_: Api, *path: str, timeout: float = CALL_TIMEOUT, **more: object) -> None:
        timeouts.append(timeout)

    monkeypatch.setattr(Api, "call", record)
    for command in ("region create x", "region delete x", "session stop alice x"):
        assert (await api.run(command)).exit_code == 0
    assert timeouts == [10.0, 10.0, 30.0]


async def test_shows_a_drain(api: Commands) -> None:
    drain = {"draining": True, "drainDeadline": 1767225600000, "drainPending": True}
    api.answers["POST", "/operator/agent/a0/drain"] = {"name": "a0", "sessions": 3} | drain
    assert await api.shown("agent drain a0") == [
        "NAME      a0",
        "SESSIONS  3",
        "DRAINING  yes, until 2026-01-01 00:00:00Z, not acknowledged yet",
    ]


async def test_shows_a_rotation(api: Commands) -> None:
    found = {
        "current": {"fingerprint": "a" * 64, "expires": 1767226500000},
        "former": {"fingerprint": "b" * 64, "expires": 1767226500000},
        "enrolled": 20,
        "moved": 19,
        "waiting": [{"agent": "host-7", "authority": "b" * 64, "why": "it is unresponsive"}],
    }
    api.answers["GET", "/operator/authority"] = found
    assert await api.shown("authority status") == [
        "CURRENT  aaaaaaaaaaaaaaaa, until 2026-01-01 00:15:00Z",
        "FORMER   bbbbbbbbbbbbbbbb, until 2026-01-01 00:15:00Z",
        "HOSTS    19 of 20 are with the current one",
        "AGENT   AUTHORITY         WHY",
        "host-7  bbbbbbbbbbbbbbbb  it is unresponsive",
    ]
    api.answers["POST", "/operator/authority/finish"] = found | {"former": None, "waiting": []}
    assert len(await api.shown("authority finish")) == 2


# ---- errors


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
