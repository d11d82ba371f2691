"""An authority whose key was stolen, or has expired, is replaced; its holder gets nothing."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from agent.rpc.enrolment import NotEnrolledError
from tests.flow.rotating import Rotating, a_caller, answers
from tests.support.controlplane.system import eventually_equals
from tests.support.fake_clock import AheadClock
from tests.support.hold import Hold, held_before


class WatchedLock(asyncio.Lock):
    """A lock that notes that a task waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = asyncio.Event()

    async def acquire(self) -> Literal[True]:
        if self.locked():
            self.waited.set()
        return await super().acquire()


@pytest.fixture
async def system(
    tmp_path: Path, quick_hosts: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rotating]:
    monkeypatch.setattr("controlplane.fleet.renewal.TICK", 0.02)
    monkeypatch.setattr("controlplane.fleet.renewal.CALL_OTHERWISE", 1.0)
    async with Rotating(tmp_path) as running:
        yield running


async def test_a_compromised_authority_is_trusted_no_more_at_once(system: Rotating) -> None:
    host = await system.joined("host-1")
    await system.make_game()
    assert (await system.start(id="kept")).status == 201
    await system.rotate()  # so that its stream is on a former connection
    await system.all_move()
    await system.finish()
    stolen = system.signer()
    token = await system.token()
    system.control_plane.fleet.unreachable_after = 0.5
    status = await system.rotate(compromised=True)
    assert status["former"] is None
    assert status["moved"] == 0
    await system.becomes("kept", "server_unreachable")
    with pytest.raises(NotEnrolledError, match="nothing was sent"):
        await system.enrol(host, token)  # it names the former authority
    await system.enrol(host, await system.token_again("host-1"))
    await system.reaches("host-1", "ready")
    await system.becomes("kept", "running")
    assert (await system.status())["waiting"] == []
    assert not await system.admits(host, a_caller(stolen))
    assert await system.admits(host, a_caller(system.signer()))


async def test_rotation_continues_when_its_caller_disconnects(system: Rotating) -> None:
    """Half of a rotation would let a new authority sign for a peer on an old connection."""
    await system.joined("host-1")
    issuer = system.control_plane.issuer
    first = issuer.authority
    hold = held_before(issuer, "trust")
    system.control_plane.fleet.unreachable_after = 0.5
    asking = asyncio.create_task(system.rotate(compromised=True), name="an operator")
    await hold.reached.wait()
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    hold.set()
    await system.reaches("host-1", "unreachable")
    assert issuer.authority is not first


async def test_no_certificate_is_issued_over_a_connection_of_a_compromised_authority(
    system: Rotating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer may be a thief, which would replace the host."""
    host = await system.joined("host-1")
    before = await system.identity(host)
    issuer = system.control_plane.issuer
    shown = Hold()
    monkeypatch.setattr(issuer, "show_current", shown)
    rotating = asyncio.create_task(system.rotate(compromised=True))
    await shown.reached.wait()
    assert issuer.authority.certificate != before.authority
    await system.control_plane.renewal.move()
    shown.set()
    await rotating
    assert (await system.identity(host)).certificate == before.certificate


async def test_token_of_a_compromised_authority_is_refused(system: Rotating) -> None:
    """A host may have sent it to an attacker with the compromised authority."""
    host = await system.host("host-1")
    token = await system.token()
    status = await system.rotate(compromised=True)
    secret = token.rpartition(".")[0]
    with pytest.raises(NotEnrolledError, match="401"):
        await system.enrol(host, f"{secret}.{status['current']['fingerprint']}")


async def test_token_that_is_made_during_a_rotation_names_the_new_authority(
    system: Rotating,
) -> None:
    host = await system.host("host-1")
    issuer = system.control_plane.issuer
    issuer.lock = lock = WatchedLock()
    hold = held_before(issuer, "trust")
    rotating = asyncio.create_task(system.rotate(compromised=True))
    await hold.reached.wait()
    making = asyncio.create_task(system.token())
    waited = asyncio.create_task(lock.waited.wait())
    await asyncio.wait({making, waited}, return_when=asyncio.FIRST_COMPLETED)
    hold.set()
    status = await rotating
    token = await making
    assert token.rpartition(".")[2] == status["current"]["fingerprint"]
    await system.enrol(host, token)


async def test_control_plane_starts_with_expired_authorities(system: Rotating) -> None:
    """So that they can be replaced: an absent host can keep a rotation open for long."""
    first = (await system.rotate())["current"]
    await system.stop_serving()
    after = system.control_plane.issuer.authority.expire + 3600
    system.clock = AheadClock(wall_ahead=after - time.time())
    await system.serve()
    await system.control_plane.renewal.renew()
    status = await system.rotate(compromised=True)
    assert status["current"] != first
    assert status["current"]["expires"] > after * 1000


async def test_host_that_enrols_again_disconnects_a_thief(system: Rotating) -> None:
    host = await system.joined("host-1")
    async with await system.connection(host, a_caller(system.signer())) as thief:
        assert await answers(thief)
        await system.rotate(compromised=True)
        assert await answers(thief)  # it still trusts the stolen key
        await system.enrol(host, await system.token_again("host-1"))
        await system.reaches("host-1", "ready")
        await eventually_equals(lambda: answers(thief), False)
    await system.reaches("host-1", "ready")
