"""Hosts that are enrolled: sessions, renewal of certificates, revocation."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from agent.rpc.identity import FILE
from controlplane.agent_rpc.client import AgentClient
from controlplane.pki import authority
from tests.flow.enrolled import Enrolling
from tests.support.agent.served import WholeAgent
from tests.support.controlplane.system import eventually
from tests.support.fake_clock import AheadClock

REVOKED_WITHIN = 30.0  # Seconds in which a revocation must take effect on a busy machine


@pytest.fixture
async def system(tmp_path: Path, quick_hosts: None) -> AsyncIterator[Enrolling]:
    async with Enrolling(tmp_path) as running:
        yield running


@asynccontextmanager
async def followed(system: Enrolling, session_id: str) -> AsyncIterator[aiohttp.StreamReader]:
    """A caller that follows the log of a session."""
    url = f"{system.control_plane.base_url}/logs?id={session_id}&follow=true"
    headers = {"Authorization": f"Bearer {system.tokens['alice']}"}
    async with system.http.get(url, headers=headers) as response:
        assert response.status == 200
        yield response.content


def followers(host: WholeAgent) -> int:
    """The number of streams that the control plane has or opens to a host."""
    return sum(task.get_name() == f"watch {host.name}" for task in asyncio.all_tasks())


async def test_certificates_are_renewed_and_no_stream_is_dropped(
    system: Enrolling, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Also not by a slow machine.
    monkeypatch.setattr("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", 60.0)
    first, second = [await system.joined(name) for name in ("host-1", "host-2")]
    await system.make_game()
    for name in ("one", "two"):
        assert (await system.start(id=name)).status == 201
    plane = system.control_plane
    before = {host.name: await system.identity(host) for host in (first, second)}
    old_caller = plane.issuer.caller
    due = max(each.state.row.certificate_expire or 0 for each in plane.fleet.hosts)

    async def all_are_renewed() -> bool:
        await plane.renewal.renew()  # retries hosts that could not be reached
        return all((each.state.row.certificate_expire or 0) > due for each in plane.fleet.hosts)

    async with followed(system, "one") as one, followed(system, "two") as two:
        await plane.renewal.renew()  # none is due
        assert {host.name: await system.identity(host) for host in (first, second)} == before
        caplog.clear()
        moved = 21 * 24 * 3600
        monkeypatch.setattr(plane.renewal, "clock", AheadClock(wall_ahead=moved))
        monkeypatch.setattr(plane.issuer, "_clock", AheadClock(wall_ahead=moved))
        # The hosts' clocks do not advance: later certificates are not yet valid for them.
        monkeypatch.setattr(authority, "BACKDATED", timedelta(seconds=moved + 600))
        await eventually(all_are_renewed)
        assert plane.issuer.caller != old_caller
        for host in (first, second):
            renewed = await system.identity(host)
            assert renewed.key != before[host.name].key
            assert renewed.uri == before[host.name].uri
            assert (await system.shown(host.name))["certificateExpires"] > due * 1000
        # They report after the renewal on the stream from before it.
        reported = [(link, link.state.reported_at or 0.0) for link in plane.fleet.hosts]
        await eventually(
            lambda: all((link.state.reported_at or 0.0) > at for link, at in reported)
        )
        assert not [r for r in caplog.records if "stream broke" in r.getMessage()]
        assert not one.at_eof()
        assert not two.at_eof()
        # And new calls use the new certificates.
        assert (await system.start(id="three")).status == 201
    await system.restart()
    await system.reaches("host-1", "ready")
    await system.reaches("host-2", "ready")
    events = await system.rows("SELECT actor, object FROM event WHERE kind='agent.renewed'")
    assert sorted(events) == [("controlplane", "host-1"), ("controlplane", "host-2")]


async def test_an_agent_that_cannot_be_renewed_is_tried_again(
    system: Enrolling, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = [await system.joined(name) for name in ("host-1", "host-2")]
    before = await system.identity(second)
    await first.stop()
    plane = system.control_plane
    monkeypatch.setattr(plane.renewal, "clock", AheadClock(wall_ahead=21 * 24 * 3600))

    async def other_is_renewed() -> bool:
        await plane.renewal.renew()  # retries hosts that could not be reached
        return await system.identity(second) != before

    await eventually(other_is_renewed)
    assert "cannot renew its certificate agent=host-1" in caplog.text
    monkeypatch.setattr(plane.renewal, "clock", AheadClock(wall_ahead=31 * 24 * 3600))
    await plane.renewal.renew()
    assert "its certificate has expired: enrol it again agent=host-1" in caplog.text


async def test_renewals_at_a_time_are_limited(
    system: Enrolling, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("host-1", "host-2"):
        await system.joined(name)
    plane = system.control_plane
    install = AgentClient.install
    steps: list[str] = []

    async def slow(self: AgentClient, *arguments: bytes, **named: bytes) -> None:
        steps.append("begins")
        for _ in range(10):
            await asyncio.sleep(0)
        await install(self, *arguments, **named)
        steps.append("ends")

    monkeypatch.setattr(AgentClient, "install", slow)
    monkeypatch.setattr("controlplane.fleet.renewal.AT_ONCE", 1)
    monkeypatch.setattr(plane.renewal, "clock", AheadClock(wall_ahead=21 * 24 * 3600))
    await plane.renewal.renew()
    assert steps == ["begins", "ends", "begins", "ends"]


async def test_expired_agent_enrols_again_and_keeps_its_sessions(system: Enrolling) -> None:
    host = await system.joined("host-1")
    await system.make_game()
    assert (await system.start(id="match")).status == 201
    old = await system.identity(host)
    await system.enrol(host, await system.token_again("host-1"))
    assert (await system.identity(host)).uri != old.uri
    await system.reaches("host-1", "ready")
    await eventually(lambda: followers(host) == 1)
    assert await system.status_of("match") == "running"
    assert (await system.call("DELETE", "/session/match")).status == 204
    # The former certificate is no longer accepted.
    await asyncio.to_thread(old.save, host.config.state_dir / FILE)
    await system.restart()
    assert (await system.shown("host-1"))["state"] == "connecting"


async def test_drained_host_stays_drained_when_it_enrols_again(system: Enrolling) -> None:
    host = await system.joined("host-1")
    order = await system.operate("POST", "/agent/host-1/drain", json={"deadline": "2h"})
    deadline_ms = order.expect(200).json["drainDeadline"]
    await host.stop()
    await system.enrol(host, await system.token_again("host-1"))
    shown = await system.shown("host-1")
    assert shown["draining"] is True
    assert shown["drainDeadline"] == deadline_ms
    await host.start()
    await system.reaches("host-1", "draining")
    shown = await system.shown("host-1")
    assert shown["drainPending"] is False
    assert shown["drainDeadline"] == deadline_ms


async def test_revoked_agent_is_disconnected_at_once_and_others_play_on(system: Enrolling) -> None:
    first = await system.joined("host-1")
    image = await system.make_game()
    assert (await system.start(id="lost")).status == 201
    second = await system.joined("host-2")
    await eventually(lambda: system.has("host-2", image))
    async with followed(system, "lost") as stream:
        begun = time.monotonic()
        system.control_plane.renewal.redial()  # the stream is on a former connection
        assert (await system.call("POST", "/operator/agent/host-1/revoke")).status == 200
        with pytest.raises(aiohttp.ClientError):
            await stream.read()
        await eventually(lambda: followers(first) == 0)
        assert time.monotonic() - begun < REVOKED_WITHIN
    shown = await system.shown("host-1")
    assert shown["state"] == "revoked"
    assert shown["sessions"] is None
    assert shown["revoked"] is not None
    assert await system.status_of("lost") == "dead"
    [(reason,)] = await system.rows("SELECT end_reason FROM session WHERE id='lost'")
    assert reason == "host_lost"
    system.agents.remove(first)  # type: ignore[arg-type]  # as it was put there
    held = len(first.engine.all)
    for _ in range(3):
        assert (await system.start()).status == 201
    assert len(first.engine.all) == held  # nothing is placed there
    assert followers(second) == 1
    await system.restart()
    assert (await system.shown("host-1"))["state"] == "revoked"
    assert system.control_plane.fleet.host("host-1") is None
