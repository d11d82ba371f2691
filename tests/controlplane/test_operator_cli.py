"""Operator commands over real HTTP against a control plane."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from controlplane.cli import authority as authority_cli
from controlplane.cli import fleet as fleet_cli
from controlplane.cli import operators as operator_cli
from controlplane.domain.names import ADDRESS_RULE
from tests.controlplane.operator_commands import Operated, cells, shell
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import eventually

TOKEN = re.compile(r"ty_[0-9a-f]{16}_[0-9a-f]{72}")
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"

pytestmark = pytest.mark.system(kind=Operated)


async def test_accounts(system: Operated) -> None:
    made = await system.run("account", "create", "studio", "--sessions", "4", "--ram", "2048")
    assert made.exit_code == 0
    assert TOKEN.fullmatch(made.stdout.strip())
    assert "cannot be shown again" in made.stderr
    assert not TOKEN.search(made.stderr)
    (await system.call("GET", "/session", token=made.stdout.strip())).expect(200)
    head, alice, _, studio = cells(await system.ok("account", "list"))
    assert head == ["NAME", "SESSIONS", "CPU", "RAM", "CREATED"]
    assert alice[:4] == ["alice", "0 of any", "0 of any", "0 MiB of any"]
    assert studio[:4] == ["studio", "0 of 4", "0 of any", "0 MiB of 2 GiB"]
    assert re.fullmatch(TIME, studio[4])
    assert await system.ok("account", "quota", "studio", "--cpu", "0.5", "--ram", "none") == ""
    rows = cells(await system.ok("account", "list"))
    assert rows[3][1:4] == ["0 of 4", "0 of 0.5", "0 MiB of any"]
    assert await system.ok("account", "delete", "studio", "--yes") == ""
    assert "'studio'" in await system.refused("account", "delete", "studio", "--yes")


async def test_tokens(system: Operated) -> None:
    create = ("token", "create", "ci", "--scope", "logs:read", "--scope", "session:read")
    made = await system.run(*create, "--account", "alice", "--expires-after", "12h")
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    assert TOKEN.fullmatch(token)
    listed = await system.ok("token", "list", "--account", "alice")
    assert not TOKEN.search(listed)
    row = dict(zip(*(cells(listed)[i] for i in (0, 2)), strict=True))
    assert row["ID"] == token.split("_")[1]
    assert row["ACCOUNT"] == "alice"
    assert row["NAME"] == "ci"
    assert row["SCOPES"] == "logs:read, session:read"
    assert re.fullmatch(TIME, row["EXPIRES"])
    assert row["LAST USED"] == "-"
    assert row["REVOKED"] == "-"
    assert await system.ok("token", "revoke", row["ID"], "--yes") == f"{row['ID']}\n"
    assert row["ID"] not in await system.ok("token", "list")
    assert row["ID"] in await system.ok("token", "list", "--all")


async def test_regions(system: Operated) -> None:
    assert await system.ok("region", "create", "eu") == ""
    assert await system.ok("region", "list") == (
        "NAME       IN SETTINGS  APPLICATIONS  AGENTS\n"
        "elsewhere  yes          0             0\n"
        "eu         no           0             0\n"
        "local      yes          0             1\n"
    )
    answer = await system.call("GET", "/operator/region")
    assert json.loads(await system.ok("region", "list", "--json")) == answer.json
    assert await system.ok("region", "delete", "eu") == ""
    refused = await system.refused("region", "delete", "local")
    assert refused.startswith("cannot delete the region: the settings file declares")


async def test_node_pools(system: Operated) -> None:
    assert await system.ok("node-pool", "set", "big", "--strategy", "spread") == ""
    pool = ["big", "spread", "no", "-", "no", "0", "0"]
    assert cells(await system.ok("node-pool", "list"))[1] == pool
    assert await system.ok("node-pool", "set", "big", "--host-network") == ""
    assert cells(await system.ok("node-pool", "list"))[1][:3] == ["big", "packed", "yes"]
    allowed = ("--capability", "SETUID", "--capability", "CHOWN")
    assert await system.ok("node-pool", "set", "big", *allowed) == ""
    shown = ["big", "packed", "no", "CHOWN, SETUID"]
    assert cells(await system.ok("node-pool", "list"))[1][:4] == shown
    assert await system.ok("node-pool", "set", "big") == ""
    assert cells(await system.ok("node-pool", "list"))[1][:4] == ["big", "packed", "no", "-"]
    assert await system.ok("node-pool", "delete", "big") == ""


async def test_registries(system: Operated) -> None:
    aliases = ("--alias", "docker.io", "--alias", "index.docker.io")
    assert await system.ok("registry", "set", "hub", "registry-1.docker.io", *aliases) == ""
    assert cells(await system.ok("registry", "list"))[1] == [
        "hub",
        "registry-1.docker.io",
        "docker.io, index.docker.io",
        "-",
        "no",
        "no",
        "0",
    ]
    assert await system.refused("registry", "set", "bad", "https://x", "--alias", "a b") == (
        "cannot set the registry: invalid request\n"
        f"  address: {ADDRESS_RULE}\n"
        f"  aliases[0]: {ADDRESS_RULE}\n"
    )
    assert await system.ok("registry", "delete", "hub") == ""


async def test_agents(system: Operated) -> None:
    image = await system.make_application()
    await system.add_agent("retired")
    first, retired = await system.listed()
    assert list(first.values())[:8] == [
        "a0",
        "ready",
        "local",
        "default",
        "0",
        "0",
        "0 of 64",
        "0 MiB of 64 GiB",
    ]
    assert first["IMAGES"] == "1"
    assert first["DRAINING"] == "no"
    assert first["CERTIFICATE UNTIL"] == "-"
    assert re.fullmatch(TIME, first["LAST REPORT"])
    assert list(retired.values())[:4] == ["retired", "connecting", "local", "default"]
    assert retired.pop("DRAINING") == "no"
    assert set(list(retired.values())[4:]) == {"-"}
    shown = dict(
        line.split("  ", 1) for line in (await system.ok("agent", "show", "a0")).splitlines()
    )
    shown = {name: text.strip() for name, text in shown.items()}
    assert shown["IMAGES"] == image
    assert shown["ENGINE AVAILABLE"] == "yes"
    assert shown["PUBLIC"] == "192.0.2.1"
    assert shown["ENGINE VERSION"] == "28.5.2"
    assert shown["RUNC"] == "1.3.3"
    assert shown["KERNEL"] == "6.12.0"
    await system.ok("agent", "drain", "a0", "--deadline", "2h")
    await system.ok("agent", "drain", "retired")

    async def is_acknowledged() -> bool:
        first, _ = await system.listed()
        return re.fullmatch(f"yes, until {TIME}", first["DRAINING"]) is not None

    await eventually(is_acknowledged)
    _, retired = await system.listed()
    assert retired["DRAINING"] == "yes, not acknowledged yet"
    assert await system.ok("agent", "remove", "retired", "--yes") == ""
    assert await system.refused("agent", "show", "retired") == (
        "cannot show the agent: cannot find agent 'retired'\n"
    )


async def test_an_agent_is_shown_with_its_failing_pulls(system: Operated) -> None:
    system.agent.before_pull = refusing("REGISTRY_UNAVAILABLE", "it answered 500")
    await system.make_application(tag=None)
    image = await system.enable("v1", pulled_by=())

    async def pulls() -> list[Any]:
        lines = (await system.ok("agent", "show", "a0")).splitlines()
        [shown] = [line.removeprefix("PULLS").strip() for line in lines if line[:5] == "PULLS"]
        return json.loads(shown) if shown.startswith("[{") else []

    async def has_failed() -> bool:
        return [pull["state"] for pull in await pulls()] == ["failed"]

    await eventually(has_failed)
    [pull] = await pulls()
    assert pull["image"] == image
    assert pull["cause"] == "registry_unavailable: it answered 500"


async def test_sessions(system: Operated) -> None:
    await system.make_application()
    evil = "a/b\u202e?#%"
    assert (await system.start(id=evil)).status == 201
    assert (await system.start(id="..")).status == 201
    rows = cells(await system.ok("session", "list", "--account", "alice", "--agent", "a0"))
    assert [row[:8] for row in rows[1:]] == [
        [
            "alice",
            "..",
            "running",
            "game:v1",
            "local",
            "a0",
            "192.0.2.1",
            rows[1][7],
        ],
        [
            "alice",
            r"a/b\u202e?#%",
            "running",
            "game:v1",
            "local",
            "a0",
            "192.0.2.1",
            "20000->7777/udp, 20001->7778/tcp",
        ],
    ]
    page = await system.run("session", "list", "--limit", "1")
    assert len(cells(page.stdout)) == 2
    before = page.stderr.removeprefix("there is more: --before ").strip()
    assert ".." not in await system.ok("session", "list", "--before", before)
    assert await system.ok("session", "stop", "alice", evil) == ""
    assert await system.ok("session", "stop", "alice", "..") == ""
    assert len(cells(await system.ok("session", "list"))) == 1
    ended = cells(await system.ok("session", "list", "--all", "--image", "game"))
    assert [row[2] for row in ended[1:]] == ["exited", "exited"]
    assert "ended" in await system.refused("session", "stop", "alice", "..")


async def test_webhooks(system: Operated) -> None:
    webhook = {"url": "https://hooks.example/x", "kinds": ["webhook.gap"], "enabled": False}
    made = (await system.call("POST", "/webhook", json=webhook)).expect(201).json
    _, line = cells(await system.ok("webhook", "list", "--account", "alice"))
    assert line[:5] == ["alice", made["id"], "hooks.example", "no", "requested"]
    assert line[5:8] == ["-", "-", "0"]
    assert cells(await system.ok("webhook", "list", "--account", "bob"))[1:] == []


async def test_audit(system: Operated) -> None:
    await system.ok("region", "create", "eu")
    actor = system.operator_token.split("_")[1]
    _, line = cells(await system.ok("audit", "--kind", "region", "--token", actor))
    assert re.fullmatch(TIME, line[1])
    assert line[2:] == ["region.created", "-", actor, "127.0.0.1", "eu", "-"]
    await system.ok("node-pool", "set", "big")
    _, line = cells(await system.ok("audit", "--object", "big"))
    assert line[-1] == '{"strategy": "packed", "hostNetwork": false, "capabilities": []}'


async def test_the_audit_is_shown_in_pages(system: Operated) -> None:
    sequences = [row[0] for row in cells(await system.ok("audit"))[1:]]
    newest = await system.run("audit", "--limit", "1")
    assert newest.stderr == f"there is more: --before {sequences[0]}\n"
    assert [row[0] for row in cells(newest.stdout)[1:]] == sequences[:1]
    older = cells(await system.ok("audit", "--before", sequences[0]))
    assert [row[0] for row in older[1:]] == sequences[1:]


def test_every_command_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text("utf-8")
    section = page.split("## Commands for operators\n")[1].split("\n## ")[0]
    for thing in (*operator_cli.COMMANDS, *fleet_cli.COMMANDS, *authority_cli.COMMANDS):
        for leaf in list(thing.commands) if isinstance(thing, click.Group) else [""]:
            assert f"$ tiltyard-controlplane {thing.name} {leaf}".rstrip() in section


async def test_closed_pipe_is_not_reported(system: Operated) -> None:
    for number in range(3):
        await system.ok("region", "create", "x" * 100 + str(number))
    command = "region list --token-file - | head -c 1; exit 0"
    url = system.control_plane.base_url
    token = system.operator_token
    assert await shell(url, command, typed=token) == (0, "N", "")
