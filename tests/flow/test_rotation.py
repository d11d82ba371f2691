"""Rotation of the authority during sessions, on real agents with engines in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from agent.rpc.identity import Identity
from agent.rpc.service import AgentService
from controlplane.backups.backup import back_up
from controlplane.backups.restore import restore
from controlplane.domain.errors import StoreError
from controlplane.fleet.renewal import Renewal
from controlplane.pki.authority import AUTHORITY_LIFE
from controlplane.storage.tables.hosts.enrolment import renewed, trusts_one_authority
from tests.flow.rotating import Rotating, a_caller
from tests.support.controlplane.system import assert_error, eventually
from tests.support.controlplane.transactions import Go, fail_once, intercept
from tiltyard.agent.v1 import agent_pb2 as pb


@pytest.fixture
async def system(
    tmp_path: Path, quick_hosts: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rotating]:
    monkeypatch.setattr("controlplane.fleet.renewal.TICK", 0.02)
    monkeypatch.setattr("controlplane.fleet.renewal.CALL_OTHERWISE", 1.0)
    async with Rotating(tmp_path) as running:
        yield running


@asynccontextmanager
async def starting(system: Rotating) -> AsyncIterator[list[int]]:
    """Start and stop sessions one after the other; collect the answers."""
    answers: list[int] = []

    async def play() -> None:
        while True:
            started = await system.start()
            answers.append(started.status)
            if started.status == 201:
                path = f"/session/{started.json['id']}"
                answers.append((await system.call("DELETE", path)).status)

    playing = asyncio.create_task(play(), name="a busy caller")
    try:
        yield answers
    finally:
        playing.cancel()
        with suppress(asyncio.CancelledError):
            await playing


async def test_hosts_move_under_load_and_nothing_is_interrupted(
    system: Rotating, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Also not by a slow machine.
    monkeypatch.setattr("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", 60.0)
    hosts = [await system.joined(name) for name in ("host-1", "host-2")]
    await system.make_game()
    assert (await system.start(id="kept")).status == 201
    caplog.clear()  # a new host may not listen yet
    before = await system.status()
    caller = a_caller(system.signer())
    old = {host.name: await system.identity(host) for host in hosts}
    url = f"{system.control_plane.base_url}/logs?id=kept&follow=true"
    headers = {"Authorization": f"Bearer {system.tokens['alice']}"}
    async with starting(system) as answers, system.http.get(url, headers=headers) as log:
        await eventually(lambda: len(answers) > 4)
        begun = await system.rotate()
        assert begun["former"] == before["current"]
        assert begun["current"] != before["current"]
        await system.all_move()
        status = await system.finish()
        count = len(answers)
        await eventually(lambda: len(answers) > count + 4)
        assert not log.content.at_eof()
    assert set(answers) == {201, 204}
    assert status["former"] is None
    assert status["enrolled"] == 2
    assert status["moved"] == 2
    assert not [r for r in caplog.records if "stream broke" in r.getMessage()]
    for host in hosts:
        moved = await system.identity(host)
        assert moved.key != old[host.name].key
        assert moved.uri == old[host.name].uri
        assert moved.trusted == system.control_plane.issuer.authority.certificate
        assert not await system.admits(host, caller)
        assert await system.admits(host, a_caller(system.signer()))
        assert (await system.shown(host.name))["authority"] == status["current"]["fingerprint"]
    assert await system.status_of("kept") == "running"
    await system.restart()
    await system.reaches("host-1", "ready")
    assert await system.rows(
        "SELECT kind FROM event WHERE kind LIKE 'authority.%' ORDER BY time_ms"
    ) == [("authority.rotated",), ("authority.finished",)]


async def test_a_host_that_was_away_moves_when_it_is_back(system: Rotating) -> None:
    await system.joined("host-1")
    away = await system.joined("host-2")
    await away.stop()
    system.control_plane.fleet.unreachable_after = 0.5
    first = (await system.rotate())["former"]
    why = "it is unresponsive, and moves once it reports"
    left = {"agent": "host-2", "authority": first["fingerprint"], "why": why}
    await system.until("/operator/authority", lambda shown: shown["waiting"] == [left])
    assert_error(await system.operate("POST", "/authority/finish", json={}), 409, details="host-2")
    await away.start()
    await system.all_move()
    assert (await system.finish())["former"] is None


async def test_host_that_was_away_until_its_certificate_expired_must_enrol_again(
    system: Rotating,
) -> None:
    host = await system.joined("host-1")
    await host.stop()
    system.control_plane.fleet.unreachable_after = 0.5
    await system.rotate()
    link = system.link("host-1")
    link.state.note_row(replace(link.state.row, certificate_expire=1))
    [left] = (await system.status())["waiting"]
    assert left["why"] == "its certificate has expired: enrol it again"


async def test_rotation_under_way_continues_when_it_is_ordered_again(system: Rotating) -> None:
    first = await system.rotate()
    assert await system.rotate() == first
    await system.restart()
    assert await system.status() == first


async def test_finish_without_a_rotation_changes_nothing(system: Rotating) -> None:
    before = await system.status()
    assert await system.finish() == before
    assert await system.events("authority.%", "kind") == []


async def test_host_left_behind_is_listed_until_it_enrols_again(system: Rotating) -> None:
    await system.joined("host-1")
    away = await system.joined("host-2")
    await system.make_game()
    await away.stop()
    system.control_plane.fleet.unreachable_after = 0.5
    await system.rotate()
    await system.until(
        "/operator/authority",
        lambda shown: [left["agent"] for left in shown["waiting"]] == ["host-2"],
    )
    status = await system.finish(force=True)
    assert status["former"] is None
    [left] = status["waiting"]
    assert left["agent"] == "host-2"
    assert left["why"] == (
        "its certificate is from an authority that is no longer trusted: enrol it again"
    )
    await away.start()
    await system.enrol(away, await system.token_again("host-2"))
    await system.all_move()
    await system.reaches("host-2", "ready")


async def test_move_that_could_not_be_stored_is_repeated(
    system: Rotating, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the host would be called with the certificate of an authority it has dropped."""
    host = await system.joined("host-1")
    await system.make_game()
    dropped: list[str] = []

    async def note_authority(go: Go) -> Any:
        [(authority,)] = await system.rows("SELECT authority FROM agent")
        dropped.append(authority)
        return await go()

    intercept(monkeypatch, trusts_one_authority, note_authority)
    intercept(monkeypatch, renewed, fail_once(StoreError("cannot write: the disk is full")))
    monkeypatch.setattr("controlplane.fleet.renewal.MOVE_AGAIN", 0.0)
    status = await system.rotate()
    await system.all_move()
    cause = "error=cannot write: the disk is full"
    assert f"cannot move to the current authority agent=host-1 {cause}" in caplog.text
    system.link("host-1").state.client.redial()  # as when a connection breaks
    assert (await system.start()).status == 201
    held = x509.load_pem_x509_certificate((await system.identity(host)).certificate)
    sql = "SELECT authority, trusts_former, certificate_serial FROM agent"
    [(fingerprint, trusts_former, serial)] = await system.rows(sql)
    assert fingerprint == status["current"]["fingerprint"]
    assert trusts_former == 0
    assert serial == f"{held.serial_number:x}"
    assert dropped == [fingerprint]  # after the other was stored


async def test_rotation_continues_from_a_backup_of_its_middle(system: Rotating) -> None:
    """The backup does not say that the host has moved since, and dropped the former authority."""
    host = await system.joined("host-1")
    await host.stop()
    begun = await system.rotate()
    backup = system.folder / "backup"
    now = datetime.now(UTC)
    await asyncio.to_thread(back_up, system.config, backup, now, replace=False)
    await host.start()
    await system.all_move()
    await system.stop_serving()
    with backup.open("rb") as file:
        await asyncio.to_thread(restore, system.config, file, now, replace=True)
    await system.serve()
    status = await system.status()
    assert status["current"] == begun["current"]
    assert status["former"] == begun["former"]
    await system.reaches("host-1", "ready")
    await system.all_move()
    assert (await system.finish())["former"] is None


async def test_older_agent_is_listed_and_stays_on_the_former_authority(
    system: Rotating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AgentService, "RenewCertificate", _renew_as_before)
    host = await system.joined("host-1")
    await system.make_game()
    before = await system.identity(host)
    await system.rotate()
    await system.until(
        "/operator/authority", lambda shown: "upgrade it" in shown["waiting"][0]["why"]
    )
    assert (await system.start()).status == 201
    # Renewals meanwhile use the authority that it trusts.
    plane = system.control_plane
    [link] = plane.fleet.hosts
    await plane.renewal.renew_host(link)
    renewed = await system.identity(host)
    assert renewed.certificate != before.certificate
    assert renewed.authority == before.authority
    # It moves after its upgrade and restart.
    await host.stop()
    monkeypatch.setattr(AgentService, "RenewCertificate", _RENEW)
    await host.start()
    await system.all_move()


async def test_host_left_behind_is_disconnected(
    system: Rotating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also its stream on a former connection: otherwise sessions would be placed there."""
    monkeypatch.setattr(AgentService, "RenewCertificate", _renew_as_before)
    await system.joined("host-1")
    system.control_plane.fleet.unreachable_after = 0.5
    await system.rotate()
    await system.finish(force=True)
    await system.reaches("host-1", "unreachable")


_RENEW = AgentService.RenewCertificate


async def _renew_as_before(
    service: AgentService, request: pb.RenewCertificateRequest, context: Any
) -> pb.RenewCertificateResponse:
    """Ignore and omit the fields for rotation."""
    request.ClearField("authorities")
    response: pb.RenewCertificateResponse = await _RENEW(service, request, context)
    response.ClearField("takes_authorities")
    return response


async def test_moved_host_stays_reachable_after_a_lost_answer(
    system: Rotating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows the new certificate, and is still called with the former one."""
    host = await system.joined("host-1")
    await system.make_game()
    former = a_caller(system.signer())

    async def lose(*_: object, **__: object) -> None:
        raise ValueError("lost")

    with monkeypatch.context() as patched:
        patched.setattr(Renewal, "_note", lose)
        await system.rotate()

        async def has_moved() -> bool:
            return bool((await system.identity(host)).trusted_too)

        await eventually(has_moved)
        assert await system.admits(host, former)
        assert await system.admits(host, a_caller(system.signer()))
        await system.restart()
        await system.reaches("host-1", "ready")
        assert (await system.start()).status == 201
    await system.all_move()
    await system.finish()


async def test_host_that_enrols_during_a_rotation_trusts_the_new_one(system: Rotating) -> None:
    status = await system.rotate()
    identity: Identity = await system.identity(await system.joined("host-1"))
    authority = x509.load_pem_x509_certificate(identity.trusted)
    assert identity.trusted_too == b""
    assert (await system.shown("host-1"))["authority"] == status["current"]["fingerprint"]
    x509.load_pem_x509_certificate(identity.certificate).verify_directly_issued_by(authority)
    assert (await system.status())["waiting"] == []


async def test_an_authority_that_is_ending_is_logged(
    system: Rotating, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renewal = system.control_plane.renewal
    await renewal.renew()
    assert "authority rotate" not in caplog.text
    monkeypatch.setattr("controlplane.pki.authority.ENDING", 2 * AUTHORITY_LIFE)
    await renewal.renew()
    assert "the authority expires within a year: `authority rotate` replaces it" in caplog.text


async def test_slow_host_keeps_the_certificate_of_the_pending_call(
    system: Rotating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine may be that slow after a restart; a swap meanwhile would be rejected."""
    asked = asyncio.Event()
    answering = asyncio.Event()
    watch = AgentService.Watch

    async def answer_late(service: AgentService, request: Any, context: Any) -> Any:
        asked.set()
        await answering.wait()
        async for message in watch(service, request, context):
            yield message

    monkeypatch.setattr(AgentService, "Watch", answer_late)
    monkeypatch.setattr(AgentService, "RenewCertificate", _renew_as_before)  # it does not move
    monkeypatch.setattr("controlplane.fleet.renewal.CALL_OTHERWISE", 1e9)
    answering.set()
    await system.joined("host-1")
    await system.make_game()
    await system.rotate()
    await system.stop_serving()
    asked.clear()
    answering.clear()
    serving = asyncio.create_task(system.serve(), name="serve again")
    await asked.wait()
    monkeypatch.setattr("controlplane.fleet.renewal.CALL_OTHERWISE", 0.0)
    await system.control_plane.renewal.move()
    monkeypatch.setattr("controlplane.fleet.renewal.CALL_OTHERWISE", 1e9)
    answering.set()
    await serving
    await system.reaches("host-1", "ready")
    assert (await system.start()).status == 201
