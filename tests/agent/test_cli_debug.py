import asyncio
import contextlib
import errno
import io
import json
import os
import pty
import re
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.domain.containers.engine import container_name
from agent.network.tls_ports import TlsPorts
from agent.sessions.prepared_containers import PreparedContainers
from agent.state.drain import DrainOrder
from tests.support.agent.hosts import pulled
from tests.support.agent.pools import POOL, a_pool, standbys
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tests.support.agent.served import WholeAgent, served
from tests.support.fake_clock import FakeClock, until_idle
from tests.support.fake_engine import FakeEngine
from tiltyard.contract import Identity, PortRequest, PreparedShape, Protocol, State

FIRST = "11111111-0000-4000-8000-000000000000"
SECOND = "22222222-0000-4000-8000-000000000000"
HOSTILE = "\x1b]0;pwned\x07\r\n\u202e é"
DAY = "2027-01-15"
SHOWN = r"\x1b]0;pwned\x07\r\n\u202e é"
OTHER = "127.0.0.1:5000/other@sha256:" + "b" * 64


@pytest.fixture
async def host(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WholeAgent]:
    # These ports may be in use on this machine, so nothing listens on them.
    monkeypatch.setattr(TlsPorts, "check", lambda _self, _spec: None)
    monkeypatch.setattr(TlsPorts, "_listen", lambda _self, _session: None)
    async with served(tmp_path, engine, clock) as agent:
        yield agent


def named(session_id: str, account: str = "acme", **changes: Any) -> Any:
    identity = Identity(account, session_id, "game", "v1", "local")
    return a_spec(identity=identity, **{"ports": (), **changes})


def pinned(host: int) -> tuple[PortRequest, ...]:
    return (
        PortRequest(7777, Protocol.UDP, pinned=host),
        PortRequest(7778, Protocol.TCP, pinned=host, tls=True),
    )


def cells(output: str) -> list[list[str]]:
    """Split a table into cells, which are separated by two or more spaces."""
    return [re.split(r"  +", line) for line in output.splitlines()]


async def test_status_shows_allocatable_resources(host: WholeAgent) -> None:
    await host.sessions.start(FIRST, named("m1", ports=pinned(25000)))
    agent_id = (host.config.state_dir / "agent_id").read_text().strip()
    shown = dict(cells(await host.ok("status")))
    assert shown.pop("agent").startswith(f"{agent_id}, version ")
    shown.pop("warning", None)  # agents of other tests use the same table of the kernel
    assert shown == {
        "state": "serving",
        "address": "192.0.2.1",
        "engine": "fake",
        "sessions": "1 live, 999 more by max_sessions",
        "cores": "0.1 of 8 reserved",
        "memory": "32 MiB of 4 GiB reserved",
        "gpus": "0 of 0 reserved",
        "ports": "10000 TCP and 10000 UDP free of 10001 each in 20000-30000",
        "images": "1",
    }
    answer = json.loads(await host.ok("status", "--json"))
    assert answer["reconciled"] is True
    assert answer["host"]["image_count"] == 1


async def test_status_shows_problems(host: WholeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.daemon.conntrack, "warnings", ("cannot flush", "twice"))
    host.daemon.reconciler.engine_available = False
    await host.sessions.drains.order(DrainOrder(1, draining=True, remaining=3600))
    lines = cells(await host.ok("status"))
    assert ["engine", "fake, does not answer"] in lines
    assert ["state", f"serving, draining until {DAY} 09:00:00Z"] in lines
    assert ["warning", "cannot flush"] in lines
    assert ["warning", "twice"] in lines


async def test_distinguishes_standbys_from_sessions(
    host: WholeAgent, engine: FakeEngine, clock: FakeClock
) -> None:
    engine.binds_at_once = False
    await host.sessions.start(FIRST, named("m1"))
    await host.daemon.warm_pools.set(a_pool(2))
    await until_idle()
    first, second = standbys(host)
    rows = {row[0]: row[1] for row in cells(await host.ok("sessions"))}
    for each in (first, second):
        assert rows[each.internal_id] == "standby, running, not ready"
    engine.find(container_name(first.internal_id)).bind()
    await clock.advance(2)
    lines = dict(cells(await host.ok("status")))
    assert lines["sessions"] == "1 live, 997 more by max_sessions"
    assert lines["warm pool"] == f"{POOL}: 1 of 2 ready, 2 live"
    states = {row[0]: row[1] for row in cells(await host.ok("sessions"))}
    assert states[FIRST] == "running"
    assert states[first.internal_id] == "standby, running"
    drained = await host.ok("drain")
    assert FIRST in drained
    assert first.internal_id not in drained


async def test_status_shows_prepared_containers_and_why_there_are_none(
    host: WholeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [PreparedShape("1", IMAGE, 2), PreparedShape("2", OTHER, 0, "cannot run the image")]
    monkeypatch.setattr(PreparedContainers, "shapes", shapes)
    lines = cells(await host.ok("status"))
    assert ["prepared", f"2 waiting for {IMAGE}"] in lines
    assert ["prepared", f"0 waiting for {OTHER}: cannot run the image"] in lines


async def test_lists_sessions_by_creation(host: WholeAgent, clock: FakeClock) -> None:
    await host.sessions.start(SECOND, named("m2", ports=pinned(25000), ttl=7500.0))
    await clock.advance(1)
    await host.sessions.start(FIRST, named("m1"))
    await clock.advance(1)
    heads = ["INTERNAL ID", "STATE", "CREATED", "EXPIRES", "PORTS", "APPLICATION", "TAG"]
    ports = "25000->7777/udp, 25000->7778/tcp, TLS"
    rest = ["game", "v1", "acme"]
    assert cells(await host.ok("sessions")) == [
        [*heads, "ACCOUNT", "SESSION"],
        [SECOND, "running", f"{DAY} 08:00:00Z", f"{DAY} 10:05:00Z", ports, *rest, "m2"],
        [FIRST, "running", f"{DAY} 08:00:01Z", "-", "-", *rest, "m1"],
    ]
    rows = [json.loads(line) for line in (await host.ok("sessions", "--json")).splitlines()]
    assert [row["internal_id"] for row in rows] == [SECOND, FIRST]


async def test_lists_ended_sessions_on_request(host: WholeAgent, engine: FakeEngine) -> None:
    await host.sessions.start(FIRST, named("m1"))
    engine.end(container_name(FIRST), 137, oom=True)
    await host.sessions.life(FIRST).wait_for(lambda session: session.state.ended)
    lines = cells(await host.ok("stop", FIRST))
    assert ["end_reason", "oom"] in lines
    assert ["exit_code", "137"] in lines
    assert FIRST not in await host.ok("sessions")
    assert cells(await host.ok("sessions", "--all"))[1][:2] == [FIRST, "exited: oom, code 137"]


async def test_refuses_names_that_are_unknown_or_not_utf8(host: WholeAgent) -> None:
    refused = await host.run("inspect", HOSTILE)
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("tiltyard-agent: there is no session '")
    assert refused.stderr.removesuffix("\n").isprintable()
    refused = await host.run("inspect", "\udcff")
    assert refused.exit_code == 2
    assert "it is not UTF-8" in refused.stderr


async def test_escapes_control_characters_of_clients(host: WholeAgent) -> None:
    identity = Identity(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, HOSTILE)
    await host.sessions.start(FIRST, a_spec(identity=identity, ports=pinned(25000), ttl=60.0))
    for command in ("sessions", f"inspect {FIRST}"):
        output = await host.ok(*command.split())
        assert SHOWN in output
        assert all(line.isprintable() for line in output.split("\n"))
        raw = await host.ok(*command.split(), "--json")
        assert all(line.isprintable() for line in raw.split("\n"))
        assert json.dumps(HOSTILE) in raw


async def test_follows_log_to_end_of_session(host: WholeAgent, engine: FakeEngine) -> None:
    await host.sessions.start(FIRST, named("m1"))
    engine.write_log(container_name(FIRST), b"\x1b[31mhot\xff\n")
    engine.hold("logs")
    following = asyncio.create_task(host.run("logs", "-f", "m1"), name="following")
    await engine.held("logs")
    engine.write_log(container_name(FIRST), b"two\n")
    engine.release("logs")
    engine.end(container_name(FIRST), 0)
    assert (await following).stdout_bytes == b"\x1b[31mhot\xff\ntwo\n"


async def test_escapes_control_characters_of_logs_on_a_terminal(
    host: WholeAgent, engine: FakeEngine, request: pytest.FixtureRequest
) -> None:
    await host.sessions.start(FIRST, named("m1"))
    engine.write_log(container_name(FIRST), "a\tb\x1b[31m\u202e é\n".encode() + b"\xff\n")
    ours, theirs = pty.openpty()
    arguments = ["logs", "m1", "--socket", str(host.config.socket)]
    shell = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agent", *arguments, stdout=theirs, cwd=request.config.rootpath
    )
    os.close(theirs)
    assert await shell.wait() == 0
    shown = b""
    with contextlib.suppress(OSError):  # EIO after the last byte
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert shown.decode() == "a\tb\\x1b[31m\\u202e é\r\n\\xff\r\n"


async def test_writes_artifact_to_standard_output(host: WholeAgent, engine: FakeEngine) -> None:
    await host.sessions.start(FIRST, named("m1"))
    engine.find(container_name(FIRST)).put_file("/save/a", b"saved")
    early = await host.run("artifact", "m1", "/save/a")
    assert early.exit_code == 1
    assert early.stderr.startswith("tiltyard-agent: SESSION_LIVE: ")
    await host.ok("stop", FIRST)
    result = await host.run("artifact", "m1", "/save/a")
    with tarfile.open(fileobj=io.BytesIO(result.stdout_bytes), mode="r:gz") as archive:
        assert archive.getnames() == ["a"]
    missing = await host.run("artifact", "m1", f"/{HOSTILE}")
    assert missing.exit_code == 1
    assert missing.stderr.startswith("tiltyard-agent: PATH_NOT_FOUND: ")
    assert missing.stderr.removesuffix("\n").isprintable()


@pytest.mark.parametrize(
    ("redirection", "begin", "end"),
    [
        (">/dev/full", "cannot print the response: ", os.strerror(errno.ENOSPC)),
        (
            ">&-",
            "nothing was done, since",
            "the standard output is closed: redirect it to /dev/null",
        ),
    ],
)
@pytest.mark.parametrize("command", ["status", "logs m1", "artifact m1 /save/a", "drain"])
async def test_reports_a_failed_output_in_one_line(
    host: WholeAgent,
    engine: FakeEngine,
    request: pytest.FixtureRequest,
    *,
    command: str,
    redirection: str,
    begin: str,
    end: str,
) -> None:
    await host.sessions.start(FIRST, named("m1"))
    engine.write_log(container_name(FIRST), b"a line\n")
    engine.find(container_name(FIRST)).put_file("/save/a", b"saved")
    await host.ok("stop", FIRST)
    agent = f"'{sys.executable}' -m agent {command} --socket '{host.config.socket}'"
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        f"exec {agent} {redirection}",
        stderr=asyncio.subprocess.PIPE,
        cwd=request.config.rootpath,
    )
    _, errors = await shell.communicate()
    assert shell.returncode == 1
    assert errors.decode().startswith(f"tiltyard-agent: {begin}")
    assert errors.decode().endswith(f"{end}\n")
    assert errors.count(b"\n") == 1


async def test_images_show_number_of_sessions(host: WholeAgent, engine: FakeEngine) -> None:
    engine.image_store.registry.add(OTHER)
    await pulled(host.daemon.images, OTHER)
    for internal_id in (FIRST, SECOND):
        await host.sessions.start(internal_id, named(internal_id))
    await host.ok("stop", SECOND)
    assert cells(await host.ok("images")) == [
        ["LIVE SESSIONS", "SIZE", "STATE", "IMAGE"],
        ["1", "10 MiB", "here", IMAGE],
        ["0", "10 MiB", "here", OTHER],
    ]
    first, _ = (await host.ok("images", "--json")).splitlines()
    assert json.loads(first) == {
        "image": IMAGE,
        "live_sessions": 1,
        "here": True,
        "size_bytes": "10485760",
        "pull": None,
    }


async def test_lists_pulls_and_removed_images(host: WholeAgent, engine: FakeEngine) -> None:
    await host.sessions.start(FIRST, named("m1"))
    engine.image_store.lose(IMAGE)
    engine.image_store.registry.add(OTHER)
    engine.hold("pull")
    images = host.daemon.images
    pull = asyncio.create_task(pulled(images, OTHER), name="pull")
    await engine.held("pull")
    await images.refresh()
    assert cells(await host.ok("images")) == [
        ["LIVE SESSIONS", "SIZE", "STATE", "IMAGE"],
        ["1", "-", "removed", IMAGE],
        ["0", "-", "on its way: 0 of 0 layers, 0 B received", OTHER],
    ]
    engine.release("pull")
    await pull


async def test_lists_the_images_known_if_the_engine_does_not_answer(
    host: WholeAgent, engine: FakeEngine
) -> None:
    before = cells(await host.ok("images"))
    engine.unavailable = True
    assert cells(await host.ok("images")) == before


async def test_reports_unresponsive_agent_in_one_line(
    host: WholeAgent, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine
) -> None:
    await host.sessions.start(FIRST, named("m1"))
    monkeypatch.setattr("agent.client.agent_client.STOP_SECONDS", 0.1)
    engine.hold("inspect")
    refused = await host.run("stop", "m1")
    engine.release("inspect")
    assert refused.exit_code == 1
    assert refused.stderr == (
        "tiltyard-agent: the agent did not answer in time; the request may still be carried out\n"
    )


async def test_report_shows_how_a_session_ended(host: WholeAgent, engine: FakeEngine) -> None:
    await host.sessions.start(FIRST, named("m1", restart=True))
    refused = await host.run("report", "m1")
    assert refused.exit_code == 1
    assert "SESSION_LIVE" in refused.stderr
    engine.end(container_name(FIRST), 137, oom=True)
    await host.sessions.life(FIRST).wait_for(lambda session: bool(session.failed_runs))
    await host.ok("stop", FIRST)
    lines = dict(cells(await host.ok("report", "m1")))
    assert lines["signal"] == "9"
    assert lines["oom_killed"] == "True"
    assert lines["failed_runs[0].exit_code"] == "137"
    assert lines["timeline[2].state"] == "restarting"
    report = json.loads(await host.ok("report", "--json", "m1"))
    assert report["end_reason"] == "END_REASON_STOPPED"
    assert report["signal"] == 9


async def test_drain_reports_empty_host(host: WholeAgent) -> None:
    assert await host.ok("drain") == "The host is empty.\n"
    assert json.loads(await host.ok("drain", "--json"))["live_sessions"] == []


async def test_drain_lists_remaining_sessions_and_deadline(host: WholeAgent) -> None:
    endless = await host.sessions.start(an_id(), a_spec())
    lines = (await host.ok("drain")).splitlines()
    assert lines[0] == "Sessions without a lifetime remain until they end by themselves."
    assert lines[2].startswith(endless.internal_id)
    lines = (await host.ok("drain", "--deadline", "2h")).splitlines()
    assert lines[0] == "The host is empty by 2027-01-15 10:00:00Z at the latest."
    assert len(lines) == 3
    assert await host.ok("undrain") == ""
    assert json.loads(await host.ok("undrain", "--json")) == {"sessions": 1}
    assert (await host.sessions.start(an_id(), a_spec())).state is State.RUNNING


@pytest.mark.parametrize("text", ["", "1", "1h1h", "-5m", "٣m", "8760h1m"])
async def test_rejects_malformed_or_long_duration(host: WholeAgent, text: str) -> None:
    result = await host.run("drain", "--deadline", text)
    assert result.exit_code == 2
    assert ("is longer than" if text.startswith("8760h") else "not of the form") in result.output
