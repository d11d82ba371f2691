"""What operator commands call and print, against a server that records calls."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from controlplane.cli.api import CALL_TIMEOUT, Api
from tests.controlplane.operator_commands import Commands, cells

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
    "agent exposure a/0": ("GET", "/operator/agent/a%2F0/exposure", None),
    "authority rotate": ("POST", "/operator/authority/rotate", {"compromised": False}),
    "authority rotate --compromised --yes": (
        "POST",
        "/operator/authority/rotate",
        {"compromised": True},
    ),
    "authority finish --force --yes": ("POST", "/operator/authority/finish", {"force": True}),
}


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
