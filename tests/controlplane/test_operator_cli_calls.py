"""Requests of operator commands, against a server that records them."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.controlplane.test_operator_cli import run
from tests.support.controlplane.stub_api import StubApi

POOL = "--size 5 --claim-signal SIGUSR1 --env A=1=2 --env B= --arg=--map --label k=v --disabled"
CALLS: dict[str, tuple[str, str, Any]] = {
    "region create e/u": ("PUT", "/operator/region/e%2Fu", None),
    "node-pool set big": (
        *("PUT", "/operator/node-pool/big"),
        {"strategy": "packed", "hostNetwork": False},
    ),
    f"warm-pool set g/1 eu {POOL}": (
        *("PUT", "/warm-pool/g%2F1/eu"),
        {"size": 5, "enabled": False, "env": {"A": "1=2", "B": ""}}
        | {"args": ["--map"], "labels": {"k": "v"}, "claimSignal": "SIGUSR1"},
    ),
    "warm-pool delete g/1 eu": ("DELETE", "/warm-pool/g%2F1/eu", None),
    "agent token --region eu --node-pool big": (
        *("POST", "/operator/enrolment-token"),
        {"region": "eu", "nodePool": "big"},
    ),
    "agent token --agent a/0": ("POST", "/operator/agent/a%2F0/token", None),
    "agent drain a/0 --deadline 2h": (
        *("POST", "/operator/agent/a%2F0/drain"),
        {"deadline": "2h"},
    ),
    "agent undrain a/0": ("DELETE", "/operator/agent/a%2F0/drain", None),
    "agent revoke a/0 --yes": ("POST", "/operator/agent/a%2F0/revoke", None),
    "authority rotate": ("POST", "/operator/authority/rotate", {"compromised": False}),
    "authority rotate --compromised --yes": (
        *("POST", "/operator/authority/rotate"),
        {"compromised": True},
    ),
    "authority finish --force --yes": ("POST", "/operator/authority/finish", {"force": True}),
}


@pytest.mark.parametrize("command", CALLS)
async def test_command_makes_one_call(tmp_path: Path, command: str) -> None:
    async with StubApi() as api:
        method, path, body = CALLS[command]
        api.answers[method, unquote(path)] = {}
        arguments = (*command.split(), "--json")
        result = await run(*arguments, url=api.url, token_file=api.token_file(tmp_path))
        assert result.exit_code == 0, result.stderr
        assert api.requests == [(method, path, body)]


@pytest.mark.parametrize(
    "command",
    [
        *("agent token", "agent token --region eu --agent a0"),
        *("agent token --agent a0 --node-pool big", "warm-pool set g eu --size 1 --env A"),
        *("agent revoke a0", "authority rotate --compromised", "authority finish --force"),
        *("account quota a", "account quota a --cpu nothing", "account quota a --cpu=-1"),
    ],
)
async def test_incomplete_command_makes_no_call(tmp_path: Path, command: str) -> None:
    """Some need a confirmation, without a terminal."""
    async with StubApi() as api:
        result = await run(*command.split(), url=api.url, token_file=api.token_file(tmp_path))
        assert (result.exit_code, result.stdout) == (2, "")
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
    tmp_path: Path, options: str, quota: dict[str, float | None]
) -> None:
    """Also a limit that this version does not know."""
    async with StubApi() as api:
        old = {"sessions": 4, "cpu": 2.5, "ram": 512.0, "gpu": 1}
        accounts = [{"name": "b", "quota": {}}, {"name": "a", "quota": old}]
        api.answers["GET", "/operator/account"] = {"accounts": accounts}
        token, change = api.token_file(tmp_path), ("account", "quota", "a", *options.split())
        assert (await run(*change, url=api.url, token_file=token)).exit_code == 0
        assert api.requests[1:] == [("PUT", "/operator/account/a", {"quota": quota})]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"accounts": [{"name": "b", "quota": {}}]}, "cannot find account 'a'"),
        ({"accounts": [{}]}, "this version does not know the format"),
    ],
)
async def test_quota_of_an_unknown_account_is_not_changed(
    tmp_path: Path, answer: Any, problem: str
) -> None:
    async with StubApi() as api:
        api.answers["GET", "/operator/account"] = answer
        change = ("account", "quota", "a", "--cpu", "1")
        result = await run(*change, url=api.url, token_file=api.token_file(tmp_path))
        assert (result.exit_code, result.stdout) == (1, "")
        assert problem in result.stderr
        assert len(api.requests) == 1


async def test_shows_drain_and_rotation(tmp_path: Path) -> None:
    async with StubApi() as api:

        async def shown(*command: str) -> list[str]:
            result = await run(*command, url=api.url, token_file=api.token_file(tmp_path))
            assert result.exit_code == 0, result.stderr
            return result.stdout.splitlines()

        api.answers["POST", "/operator/agent/a0/drain"] = {"name": "a0", "sessions": 3} | {
            "draining": True,
            "drainDeadline": 1767225600000,
            "drainPending": True,
        }
        assert await shown("agent", "drain", "a0") == [
            "NAME      a0",
            "SESSIONS  3",
            "DRAINING  yes, until 2026-01-01 00:00:00Z, not acknowledged yet",
        ]
        found = {
            "current": {"fingerprint": "a" * 64, "expires": 1767226500000},
            "former": {"fingerprint": "b" * 64, "expires": 1767226500000},
            "enrolled": 20,
            "moved": 19,
            "waiting": [{"agent": "host-7", "authority": "b" * 64, "why": "it is unresponsive"}],
        }
        api.answers["GET", "/operator/authority"] = found
        assert await shown("authority", "status") == [
            "CURRENT  aaaaaaaaaaaaaaaa, until 2026-01-01 00:15:00Z",
            "FORMER   bbbbbbbbbbbbbbbb, until 2026-01-01 00:15:00Z",
            "HOSTS    19 of 20 are with the current one",
            "AGENT   AUTHORITY         WHY",
            "host-7  bbbbbbbbbbbbbbbb  it is unresponsive",
        ]
        api.answers["POST", "/operator/authority/finish"] = found | {"former": None, "waiting": []}
        assert len(await shown("authority", "finish")) == 2
