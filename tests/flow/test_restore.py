"""A restored or lost database: hosts report what they run, and nothing starts twice.

Real control plane, real agents on engines in memory, mutual TLS between them.
"""

import asyncio
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.rpc.signing import expire_time
from controlplane.backups.backup import back_up
from controlplane.backups.restore import restore
from controlplane.pki import authority
from tests.flow.enrolled import Enrolling
from tests.support.agent.served import WholeAgent
from tests.support.controlplane.kept_states import rows
from tests.support.controlplane.system import eventually, eventually_equals
from tests.support.fake_clock import AheadClock


class Kept(Enrolling):
    """A deployment whose state is backed up, restored and lost."""

    @property
    def backup(self) -> Path:
        return self.folder / "backup"

    async def back_up(self) -> None:
        await asyncio.to_thread(
            back_up, self.config, self.backup, datetime.now(UTC), replace=False
        )

    async def put_back(self) -> None:
        """Stop the control plane and restore its state from the backup."""
        await self.stop_serving()
        content = await asyncio.to_thread(self.backup.read_bytes)
        await asyncio.to_thread(
            restore, self.config, io.BytesIO(content), datetime.now(UTC), replace=True
        )

    async def started(self, session_id: str) -> None:
        (await self.start(id=session_id)).expect(201)

    async def stopped(self, session_id: str) -> None:
        (await self.call("DELETE", f"/session/{session_id}")).expect(204)


@pytest.fixture
async def system(
    tmp_path: Path, quick_hosts: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Kept]:
    monkeypatch.setattr("controlplane.fleet.renewal.INTERVAL", 0.5)
    monkeypatch.setattr("controlplane.fleet.renewal.TICK", 0.5)
    monkeypatch.setattr("tiltyard.runtime.clock.HELD_SECONDS", 0.0)
    async with Kept(tmp_path) as running:
        yield running


def running(*hosts: WholeAgent) -> set[str]:
    """Internal ids of the running containers."""
    held = [each for host in hosts for each in host.engine.all]
    return {each.spec.internal_id for each in held if each.process is not None}


async def internal_ids(system: Kept) -> set[str]:
    """Internal ids of the live sessions in the database."""
    sql = "SELECT internal_id FROM session WHERE ended_ms IS NULL"
    return {str(row[0]) for row in await system.rows(sql)}


async def players(system: Kept, session_id: str) -> list[str]:
    return sorted((await system.call("GET", f"/session/{session_id}")).json["players"]["joined"])


async def test_a_backup_is_restored_and_the_hosts_report_the_rest(system: Kept) -> None:
    hosts = [await system.joined(name) for name in ("host-1", "host-2")]
    image = await system.make_game()
    await eventually(lambda: all(system.has(host.name, image) for host in hosts))
    before = {"stays", "stopped", "stopped since"}
    for session_id in before:
        await system.started(session_id)
    await system.stopped("stopped")
    await system.call("PUT", "/session/player/join", json={"session": "stays", "players": ["ann"]})
    await system.back_up()
    await system.stopped("stopped since")
    for session_id in ("started since", "both since"):
        await system.started(session_id)
    await system.stopped("both since")
    await system.call("PUT", "/session/player/join", json={"session": "stays", "players": ["bo"]})

    await system.put_back()
    await system.serve()
    for host in hosts:
        await system.reaches(host.name, "ready")
    live = {"stays", "started since"}
    known = "SELECT id FROM session"
    assert before <= {row[0] for row in await system.rows(known)}, "a 201 of before the backup"
    back = f"{known} WHERE ended_ms IS NULL AND confirmed ORDER BY id"
    await eventually_equals(lambda: system.rows(back), sorted((each,) for each in live))
    for session_id in live:
        assert await system.status_of(session_id) == "running"
    for session_id in ("stopped", "stopped since", "both since"):
        assert await system.status_of(session_id) == "exited"
    assert running(*hosts) == await internal_ids(system)
    assert await system.rows("SELECT * FROM stop_order WHERE confirmed_ms IS NULL") == []
    assert await players(system, "stays") == ["ann"], "of players only the backup knows"

    quota = {"quota": {"sessions": len(live) + 1}}
    (await system.operate("PUT", "/account/alice", json=quota)).expect(204)
    await system.started("the last")
    (await system.start(id="one too many")).expect(402)
    (await system.start(id="started since")).expect(409)
    for session_id in (*live, "the last"):
        await system.stopped(session_id)
    await eventually(lambda: not running(*hosts))
    assert await internal_ids(system) == set()


async def test_certificate_renewed_since_the_backup_is_accepted_and_shown(
    system: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await system.joined("host-1")
    await system.make_game()
    await system.started("match")
    await system.back_up()
    moved = 21 * 24 * 3600
    # The host's clock does not advance: the new certificate must already be valid for it.
    monkeypatch.setattr(authority, "BACKDATED", timedelta(seconds=moved + 600))
    system.clock = AheadClock(wall_ahead=moved)
    before = await system.identity(host)
    await system.restart()
    await eventually_renewed(system, host, expire_time(before))
    renewed = await system.identity(host)

    await system.put_back()
    sql = "SELECT certificate_expire_ms FROM agent"
    [(shown,)] = await asyncio.to_thread(rows, system.config, sql)
    assert shown == int(expire_time(before) * 1000)
    await system.serve()
    await system.reaches("host-1", "ready")
    await eventually_renewed(system, host, expire_time(renewed) - 1)
    assert await system.status_of("match") == "running"


async def eventually_renewed(system: Kept, host: WholeAgent, since: float) -> None:
    """Wait until a host has a later certificate, and operators see its expiry."""

    async def holds() -> bool:
        expires = expire_time(await system.identity(host))
        shown = (await system.shown(host.name))["certificateExpires"]
        return expires > since and bool(shown == int(expires * 1000))

    await eventually(holds)


async def test_host_that_enrolled_again_since_the_backup_must_enrol_again(system: Kept) -> None:
    host = await system.joined("host-1")
    await system.make_game()
    await system.back_up()
    await system.enrol(host, await system.token_again("host-1"))
    await system.reaches("host-1", "ready")
    await system.started("match")
    await system.put_back()
    await system.serve()
    assert (await system.shown("host-1"))["state"] == "connecting", "by its id of before"
    await system.enrol(host, await system.token_again("host-1"))
    await system.reaches("host-1", "ready")
    assert await system.status_of("match") == "running"


async def test_session_claimed_since_the_backup_is_adopted_as_it_was_placed(system: Kept) -> None:
    host = await system.joined("host-1")
    await system.make_game()
    (await system.call("PUT", "/warm-pool/game/local", json={"size": 1})).expect(204)
    await system.until("/warm-pool", lambda found: found["warmPools"][0]["ready"] == 1)
    [standby] = running(host)
    await system.back_up()
    await system.started("match")
    placed = "SELECT internal_id, nano_cpus, memory_bytes, labels, tag FROM session"
    before = await system.rows(placed)
    assert before[0][0] == standby
    await system.put_back()
    await system.serve()
    await system.becomes("match", "running")
    assert await system.rows(placed) == before
    await system.stopped("match")
    assert await internal_ids(system) == set()
