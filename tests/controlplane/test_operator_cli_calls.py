"""What the operators' commands send, against a server that notes it."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.controlplane.test_operator_cli import cells, run
from tests.support.controlplane.stub_api import StubApi


@pytest.mark.parametrize(
    ("options", "quota"),
    [
        ("--sessions 200", {"sessions": 200, "cpu": 2.5, "ram": 512.0, "gpu": 1}),
        ("--cpu none", {"sessions": 4, "cpu": None, "ram": 512.0, "gpu": 1}),
        ("--ram 0 --sessions none", {"sessions": None, "cpu": 2.5, "ram": 0.0, "gpu": 1}),
    ],
)
async def test_a_limit_that_is_not_named_stays(
    tmp_path: Path, options: str, quota: dict[str, float | None]
) -> None:
    """Also one that this version does not know."""
    async with StubApi() as api:
        old = {"sessions": 4, "cpu": 2.5, "ram": 512.0, "gpu": 1}
        accounts = [{"name": "b", "quota": {}}, {"name": "a", "quota": old}]
        api.answers["GET", "/operator/account"] = {"accounts": accounts}
        token, change = api.token_file(tmp_path), ("account", "quota", "a", *options.split())
        assert (await run(*change, url=api.url, token_file=token)).exit_code == 0
        assert api.requests[1:] == [("PUT", "/operator/account/a", {"quota": quota})]


async def test_a_quota_that_cannot_be_changed(tmp_path: Path) -> None:
    async with StubApi() as api:
        accounts = {"accounts": [{"name": "b", "quota": {}}]}
        token = api.token_file(tmp_path)
        for answer, options, code, told in (
            (accounts, "", 2, "give what to change: --sessions, --cpu, --ram"),
            (accounts, "--cpu nothing", 2, "Invalid value for '--cpu'"),
            (accounts, "--cpu=-1", 2, "Invalid value for '--cpu'"),
            (accounts, "--cpu 1", 1, "cannot set the quota: cannot find account 'a'"),
            ({"accounts": [{}]}, "--cpu 1", 1, "this version does not know the format"),
        ):
            api.answers["GET", "/operator/account"] = answer
            change = ("account", "quota", "a", *options.split())
            result = await run(*change, url=api.url, token_file=token)
            assert (result.exit_code, result.stdout) == (code, "")
            assert told in result.stderr
        assert {method for method, _, _ in api.requests} == {"GET"}


async def test_what_a_warm_pool_is_set_to(tmp_path: Path) -> None:
    async with StubApi() as api:
        token = api.token_file(tmp_path)

        async def warm_pool(*arguments: str) -> Result:
            return await run("warm-pool", *arguments, url=api.url, token_file=token)

        api.answers["GET", "/warm-pool"] = {
            "warmPools": [
                {"image": "game", "location": "eu", "size": 3, "enabled": True, "ready": 2}
                | {"env": {"A": "1"}, "args": [], "labels": {}, "claimSignal": "SIGHUP"}
            ]
        }
        assert cells((await warm_pool("list")).stdout)[1] == [
            *("game", "eu", "3", "2", "yes", '{"A": "1"}', "-", "-", "SIGHUP")
        ]
        more = (
            "--claim-signal",
            "SIGUSR1",
            "--env",
            "A=1=2",
            "--env",
            "B=",
            "--arg",
            "--map",
            "--label",
            "k=v",
            "--disabled",
        )
        assert (await warm_pool("set", "g/1", "eu", "--size", "5", *more)).exit_code == 0
        assert api.requests[-1] == (
            *("PUT", "/warm-pool/g%2F1/eu"),
            {"size": 5, "enabled": False, "env": {"A": "1=2", "B": ""}}
            | {"args": ["--map"], "labels": {"k": "v"}, "claimSignal": "SIGUSR1"},
        )
        assert (await warm_pool("delete", "g/1", "eu")).exit_code == 0
        assert [request[:2] for request in api.requests[2:]] == [("DELETE", "/warm-pool/g%2F1/eu")]
        for bad in ("A", "=1"):
            result = await warm_pool("set", "g", "eu", "--size", "1", "--env", bad)
            assert result.exit_code == 2
            assert "KEY=VALUE" in result.stderr


async def test_a_token_for_a_host_and_a_revocation(tmp_path: Path) -> None:
    async with StubApi() as api:
        token = api.token_file(tmp_path)

        async def agent(*arguments: str) -> Result:
            return await run("agent", *arguments, url=api.url, token_file=token)

        made = {"id": "0123456789abcdef", "token": "ty_for_one_host", "expires": 1767226500000}
        api.answers["POST", "/operator/enrolment-token"] = made
        api.answers["POST", "/operator/agent/a/0/token"] = made
        token_of = "/operator/enrolment-token"
        for options, path, body in (
            ("--region eu", token_of, {"region": "eu", "nodePool": None}),
            ("--region eu --node-pool big", token_of, {"region": "eu", "nodePool": "big"}),
            ("--agent a/0", "/operator/agent/a%2F0/token", None),
        ):
            result = await agent("token", *options.split())
            assert (result.exit_code, result.stdout) == (0, "ty_for_one_host\n")
            assert api.requests[-1] == ("POST", path, body)
        asked = len(api.requests)
        for options in ("", "--region eu --agent a0", "--agent a0 --node-pool big"):
            assert (await agent("token", *options.split())).exit_code == 2
        assert len(api.requests) == asked
        assert (await agent("revoke", "a/0", "--yes")).exit_code == 0
        assert api.requests[-1] == ("POST", "/operator/agent/a%2F0/revoke", None)
        asked = len(api.requests)
        assert (await agent("revoke", "a0")).exit_code == 2  # nobody is there to ask
        assert len(api.requests) == asked


async def test_a_drain_and_its_end(tmp_path: Path) -> None:
    async with StubApi() as api:
        token = api.token_file(tmp_path)

        async def said(*arguments: str) -> str:
            result = await run("agent", *arguments, url=api.url, token_file=token)
            assert result.exit_code == 0, result.stderr
            return result.stdout

        row = {"name": "a/0", "sessions": 3, "draining": True, "drainDeadline": 1767225600000}
        api.answers["POST", "/operator/agent/a/0/drain"] = row | {"drainPending": True}
        assert (await said("drain", "a/0", "--deadline", "2h")).splitlines() == [
            "NAME      a/0",
            "SESSIONS  3",
            "DRAINING  yes, until 2026-01-01 00:00:00Z, not acknowledged yet",
        ]
        drain = ("POST", "/operator/agent/a%2F0/drain", {"deadline": "2h"})
        assert api.requests == [drain]
        ended = row | {"draining": False, "drainDeadline": None, "drainPending": False}
        api.answers["DELETE", "/operator/agent/a/0/drain"] = ended
        assert "DRAINING  no\n" in await said("undrain", "a/0")
        assert api.requests[1:] == [("DELETE", drain[1], None)]
        assert json.loads(await said("undrain", "a/0", "--json")) == ended


async def test_a_rotation_and_its_end(tmp_path: Path) -> None:
    async with StubApi() as api:
        token = api.token_file(tmp_path)

        async def authority(*arguments: str) -> Result:
            return await run("authority", *arguments, url=api.url, token_file=token)

        left = {"agent": "host-7", "authority": "b" * 64, "why": "it is silent"}
        shown = {
            "current": {"fingerprint": "a" * 64, "created": 0, "expires": 1767226500000},
            "former": {"fingerprint": "b" * 64, "created": 0, "expires": 1767226500000},
            "enrolled": 20,
            "moved": 19,
            "waiting": [left],
        }
        path = "/operator/authority"
        api.answers["GET", path] = api.answers["POST", f"{path}/rotate"] = shown
        api.answers["POST", f"{path}/finish"] = {**shown, "former": None, "waiting": []}
        for command in ("status", "rotate"):
            result = await authority(command)
            assert result.exit_code == 0
            assert "CURRENT  aaaaaaaaaaaaaaaa, until 2026-01-01 00:15:00Z" in result.stdout
            assert "FORMER   bbbbbbbbbbbbbbbb, until" in result.stdout
            assert "HOSTS    19 of 20 are with the current one" in result.stdout
            assert "host-7  bbbbbbbbbbbbbbbb  it is silent" in result.stdout
        assert api.requests[-1] == ("POST", f"{path}/rotate", {"compromised": False})
        result = await authority("finish")
        assert "FORMER" not in result.stdout
        assert api.requests[-1] == ("POST", f"{path}/finish", {"force": False})
        asked = len(api.requests)
        for options in ("rotate --compromised", "finish --force"):
            assert (await authority(*options.split())).exit_code == 2  # nobody is there to ask
        assert len(api.requests) == asked
        await authority("rotate", "--compromised", "--yes")
        assert api.requests[-1] == ("POST", f"{path}/rotate", {"compromised": True})
        await authority("finish", "--force", "--yes")
        assert api.requests[-1] == ("POST", f"{path}/finish", {"force": True})
