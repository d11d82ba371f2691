"""Full and failing disks: refused starts and early removals."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agent.domain.containers.engine import Engine
from agent.domain.errors import DiskFullError, EngineError, LogGoneError
from agent.domain.sessions.session import Session
from agent.kernel.disks import RESERVE_INODES, Disk, Disks, disk_of, measured
from agent.logs import reading as logs
from agent.logs import report
from agent.state.record import Records
from tests.faults.ledger import ledger
from tests.faults.memory_host import assert_survived
from tests.support.agent.fixtures import FullWhile
from tests.support.agent.hosts import Agent, Host, until_sealed
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.hold import held_before
from tiltyard.contract import EndReason, State
from tiltyard.runtime import atomic_file
from tiltyard.runtime.back_off import RETRY_LONGEST_SECONDS

RESERVE = 1000
OUTPUT = (b"a" * 99_999 + b"\n") * 7  # More than one message


class Filling:
    """Disks with given free space, one for each folder unless `shared`."""

    def __init__(self) -> None:
        self.free: dict[str, int] = {}
        self.free_inodes: dict[str, int] = {}
        self.shared = False
        self.read_only: set[str] = set()

    def __call__(self, path: Path, reserve_bytes: int) -> Disk:
        return Disk(
            path,
            self.free.get(path.name, 10 * RESERVE),
            reserve_bytes,
            device=0 if self.shared else hash(path),
            is_read_only=path.name in self.read_only,
            free_inodes=self.free_inodes.get(path.name, 10 * RESERVE),
            reserve_inodes=RESERVE,
        )


@pytest.fixture
def filling() -> Filling:
    return Filling()


@pytest.fixture
async def agent(host: Host, filling: Filling) -> AsyncIterator[Agent]:
    disks = Disks(RESERVE, Path("/state"), filling)
    disks.watch("/docker")
    async with host(disks=disks) as agent:
        yield agent
        if ledger.wants_checks and not ledger.checked:
            filling.free.clear()
            filling.free_inodes.clear()
            filling.read_only.clear()
            await assert_survived(agent)


@pytest.mark.parametrize("disk", ["state", "docker"])
async def test_f34_a_disk_that_is_short_refuses_starts_until_there_is_room(
    agent: Agent, filling: Filling, disk: str
) -> None:
    running = await agent.sessions.start(an_id(), a_spec())
    filling.free[disk] = RESERVE - 1
    with agent.runtime.feed.subscribe() as subscription:
        await agent.pass_over()
        assert (await subscription.take(0)).host
    with pytest.raises(DiskFullError, match=f"/{disk}"):
        await agent.sessions.start(an_id(), a_spec())
    assert len(agent.sessions.all()) == 1
    assert agent.directories() == [running.internal_id]
    [warning] = agent.reservations.disks.warnings
    assert f"/{disk}" in warning
    filling.free[disk] = RESERVE
    await agent.pass_over()
    assert (await agent.sessions.start(an_id(), a_spec())).state is State.RUNNING
    assert agent.reservations.disks.warnings == ()


async def test_disk_without_inodes_refuses_and_evicts(agent: Agent, filling: Filling) -> None:
    ended = await _ended(agent)
    filling.free_inodes["docker"] = RESERVE - 1
    await agent.pass_over()
    with pytest.raises(DiskFullError, match="999 inodes are free, 1000 are reserved"):
        await agent.sessions.start(an_id(), a_spec())
    assert agent.reservations.disks.short is not None
    assert agent.now(ended).container_removed


@pytest.mark.parametrize(
    ("inodes", "free", "reserve_bytes", "is_short", "is_low"),
    [
        (0, 0, 1, False, False),  # btrfs reports none at all
        (10**7, 2 * RESERVE_INODES, 1, False, False),
        (10**7, 2 * RESERVE_INODES - 1, 1, False, True),
        (10**7, RESERVE_INODES - 1, 1, True, True),
        (1000, 100, 1, False, False),  # a small disk reserves a twentieth
        (1000, 49, 1, True, True),
        (10**7, 0, 0, False, False),  # disk_reserve = 0
    ],
)
def test_inodes_count_as_space(
    inodes: int, free: int, reserve_bytes: int, is_short: bool, is_low: bool
) -> None:
    found = os.statvfs_result((4096, 4096, 10**6, 10**6, 10**6, inodes, free + 1, free, 0, 255))
    disk = disk_of(Path("/disk"), found, 1, reserve_bytes)
    assert disk.is_short == is_short
    assert disk.is_low == is_low


@pytest.mark.parametrize("disk", ["state", "docker"])
async def test_f35_a_disk_that_is_read_only_refuses_starts_where_the_agent_writes(
    agent: Agent, filling: Filling, disk: str
) -> None:
    filling.read_only.add(disk)  # systemd mounts Docker's disk read-only for the agent
    await agent.pass_over()
    if disk == "docker":
        await agent.sessions.start(an_id(), a_spec())
        return
    with pytest.raises(DiskFullError, match="nothing can be written"):
        await agent.sessions.start(an_id(), a_spec())
    assert ("create", "") not in agent.engine.calls
    assert "nothing can be written" in agent.reservations.disks.warnings[0]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
async def test_f35_a_disk_that_fails_refuses_starts_and_disturbs_no_session(
    agent: Agent, number: int
) -> None:
    due = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
    stopped = await agent.sessions.start(an_id(), a_spec())
    crashed = await agent.sessions.start(an_id(), a_spec(restart=True))
    before = agent.directories()
    with mock.patch.object(Path, "replace", side_effect=OSError(number, os.strerror(number))):
        agent.engine.calls.clear()
        with pytest.raises(DiskFullError, match=os.strerror(number)):
            await agent.sessions.start(an_id(), a_spec())
        assert "create" not in {call for call, _ in agent.engine.calls}
        assert agent.directories() == before
        agent.engine.end(crashed.container, 1)
        await agent.sessions.stop(stopped.internal_id, EndReason.STOPPED)
        await agent.clock.advance(61)
        agent.sessions.end_due()
        await agent.reached(due.internal_id)
        again = agent.now(crashed.internal_id)
        assert again.state == State.RUNNING
        assert again.restart_count == 1
    await agent.clock.advance(RETRY_LONGEST_SECONDS)
    assert (await agent.sessions.start(an_id(), a_spec())).state is State.RUNNING
    for session, reason in ((due, EndReason.TTL), (stopped, EndReason.STOPPED)):
        recorded = agent.recorded(session.internal_id)
        assert recorded.end_reason == reason
        assert recorded.log_sealed is True


async def test_unsaved_record_is_written_once_there_is_space(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    whole = atomic_file.write

    def write(target: Path, *rest: Any, **more: Any) -> None:
        if target.name == "record.json":  # the log is smaller
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(target, *rest, **more)

    with mock.patch("agent.state.record.write", write):
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        await until_sealed(agent, session.internal_id)
        await agent.pass_over()
        assert agent.recorded(session.internal_id).state is State.RUNNING
    await agent.pass_over()
    recorded = agent.recorded(session.internal_id)
    assert recorded.state == State.EXITED
    assert recorded.log_sealed is True
    assert not agent.records.unrecorded


async def test_unsaved_record_is_not_rewritten_during_sealing(agent: Agent) -> None:
    """Otherwise an older change would replace a newer one."""
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.held_at("log.sealed", agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    agent.records.unrecorded.add(session.internal_id)
    late = held_before(agent.records, "save", lambda changed: not changed.log_sealed)
    await agent.reconciler.pass_once()
    await until_idle()
    agent.steps.release("log.sealed")
    await until_sealed(agent, session.internal_id)
    late.set()
    await until_idle()
    assert agent.now(session.internal_id).log_sealed
    assert agent.recorded(session.internal_id).log_sealed


@mock.patch("agent.domain.sessions.retention.SPARED_AT_ONCE", 2)
async def test_low_engine_disk_removes_oldest_containers_until_there_is_room(
    agent: Agent, filling: Filling
) -> None:
    running = await agent.sessions.start(an_id(), a_spec())
    ended = [await _ended(agent) for _ in range(3)]
    await agent.pass_over()
    assert _removed(agent) == set()
    filling.free["docker"] = 2 * RESERVE - 1
    await agent.pass_over()
    assert _removed(agent) == set(ended[:2])
    filling.free["docker"] = 2 * RESERVE
    await agent.pass_over()
    assert _removed(agent) == set(ended[:2])
    assert agent.now(running.internal_id).state is State.RUNNING
    assert _logs(agent) == set(ended)  # they are on another disk


async def test_shared_disk_loses_containers_before_logs(agent: Agent, filling: Filling) -> None:
    filling.shared = True
    old = await _ended(agent)
    await agent.pass_over(after=4 * 3600)
    young = await _ended(agent)
    filling.free = {"docker": 0, "state": 0}
    await agent.pass_over()
    assert _removed(agent) == {old, young}
    assert _logs(agent) == {old, young}
    await agent.pass_over()
    assert _logs(agent) == set()


async def test_shared_disk_loses_logs_while_a_container_cannot_be_removed(
    agent: Agent, filling: Filling
) -> None:
    filling.shared = True
    old = await _ended(agent)
    await agent.pass_over(after=4 * 3600)
    stuck = await _ended(agent)
    filling.free = {"docker": 0, "state": 0}
    for _ in range(2):
        agent.engine.fail_next("remove", EngineError("remove", "device or resource busy"))
        await agent.pass_over()
    assert _removed(agent) == {old}
    assert _logs(agent) == {stuck}
    await agent.pass_over()
    assert _removed(agent) == {old, stuck}


@mock.patch("agent.domain.sessions.retention.SPARED_AT_ONCE", 2)
async def test_low_state_disk_removes_oldest_logs_first(
    agent: Agent, filling: Filling, caplog: pytest.LogCaptureFixture
) -> None:
    ended = [await _ended(agent) for _ in range(4)]
    await agent.pass_over(after=4 * 3600)
    with_container = await _ended(agent)
    filling.free["state"] = 2 * RESERVE - 1
    with agent.records.kept(ended[0]):  # it is being read
        await agent.pass_over()
        assert _logs(agent) == {ended[0], ended[3], with_container}
    assert f"removed early to free disk space session={ended[1]} part=log" in caplog.text
    await agent.pass_over()
    assert _logs(agent) == {with_container}
    await agent.pass_over()
    assert _logs(agent) == {with_container}
    assert with_container not in _removed(agent)


async def test_report_outlasts_early_removal_of_the_log(agent: Agent, filling: Filling) -> None:
    internal_id = await _ended(agent)
    await agent.pass_over(after=4 * 3600)
    filling.free["state"] = 0
    await agent.pass_over()
    life = agent.sessions.life(internal_id)
    with pytest.raises(LogGoneError):
        await anext(logs.read(agent.engine, agent.records, agent.clock, life, follow=False))
    session, tail = await report.read(agent.records, agent.clock, life)
    assert session.end_reason == EndReason.STOPPED
    assert tail is None
    await agent.pass_over(after=7 * 86400)
    assert agent.directories() == []


async def test_log_is_not_removed_while_it_is_read(agent: Agent, filling: Filling) -> None:
    internal_id = await _ended(agent, OUTPUT)
    await agent.pass_over(after=4 * 3600)
    life = agent.sessions.life(internal_id)
    reading = logs.read(agent.engine, agent.records, agent.clock, life, follow=False)
    read = [await anext(reading)]
    filling.free["state"] = 0
    await agent.pass_over()
    assert _logs(agent) == {internal_id}
    read += [chunk async for chunk in reading]
    assert b"".join(read) == OUTPUT
    await agent.pass_over()
    assert _logs(agent) == set()


async def test_log_without_space_replaces_older_logs(host: Host, full_while: FullWhile) -> None:
    """Also without a reserve: a log may be larger than that."""
    disks = Disks(0, host.folder / "state")
    async with host(disks=disks) as agent:
        oldest = await _ended(agent)
        await agent.pass_over(after=4 * 3600)
        assert _removed(agent) == {oldest}
        full_while(lambda: oldest in _logs(agent))
        session = await agent.sessions.start(an_id(), a_spec())
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        await host.clock.advance(1)
        assert _logs(agent) == {oldest}
        assert disks.warnings == ()
        await agent.pass_over()
        await host.clock.advance(RETRY_LONGEST_SECONDS)
        assert _logs(agent) == {session.internal_id}
        assert disks.warnings == ()


async def test_warns_of_a_log_that_gets_no_space(host: Host, full_while: FullWhile) -> None:
    disks = Disks(0, host.folder / "state")
    room = asyncio.Event()
    full_while(lambda: not room.is_set())
    async with host(disks=disks) as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        await host.clock.advance(1)
        with agent.runtime.feed.subscribe() as subscription:
            await agent.pass_over()
            assert (await subscription.take(0)).host
        [warning] = disks.warnings
        assert warning.startswith("the logs of 1 ended sessions cannot be sealed")
        assert not agent.now(session.internal_id).container_removed
        room.set()
        await agent.pass_over(after=2 * RETRY_LONGEST_SECONDS)
        assert _logs(agent) == {session.internal_id}
        assert disks.warnings == ()


async def test_warning_counts_the_logs_without_space(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_room: set[str] = set()
    seal = logs.seal

    async def sealed(
        engine: Engine, records: Records, session: Session, *rest: Any, **named: Any
    ) -> Any:
        if session.internal_id not in with_room:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise DiskFullError("log", "no space left") from full
        return await seal(engine, records, session, *rest, **named)

    monkeypatch.setattr(logs, "seal", sealed)
    disks = Disks(0, host.folder / "state")
    async with host(disks=disks) as agent:
        first = await agent.sessions.start(an_id(), a_spec())
        second = await agent.sessions.start(an_id(), a_spec())
        for session in (first, second):
            await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        await agent.pass_over(after=1)
        [warning] = disks.warnings
        assert warning.startswith("the logs of 2 ended sessions cannot be sealed")
        with_room.add(first.internal_id)
        await agent.pass_over(after=2 * RETRY_LONGEST_SECONDS)
        assert _logs(agent) == {first.internal_id}
        [warning] = disks.warnings
        assert warning.startswith("the logs of 1 ended sessions cannot be sealed")


async def test_other_disk_failures_evict_nothing(agent: Agent, full_while: FullWhile) -> None:
    oldest = await _ended(agent)
    await agent.pass_over(after=4 * 3600)
    full_while(lambda: True, errno.EIO)
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    await agent.pass_over(after=1)
    assert _logs(agent) == {oldest}


async def test_logs_without_space_are_retried_one_at_a_time(
    agent: Agent, full_while: FullWhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each needs twice its size, so all together might never fit."""
    at_work = 0
    most = 0
    seal = logs.seal

    async def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        try:
            await agent.clock.sleep(0.1)
            return await seal(*arguments, **named)
        finally:
            at_work -= 1

    sessions = [await agent.sessions.start(an_id(), a_spec()) for _ in range(3)]
    monkeypatch.setattr(logs, "seal", counted)
    full_while(lambda: True)
    for session in sessions:
        agent.engine.end(session.container, 0)
    await agent.clock.advance(0.3)
    assert most == 3
    most = 0
    await agent.clock.advance(10)
    assert most == 1


async def test_unknown_disk_state_refuses_nothing(host: Host) -> None:
    async with host(disks=Disks(RESERVE, host.folder / "none")) as agent:
        assert (await agent.sessions.start(an_id(), a_spec())).state is State.RUNNING


def test_reserve_is_at_most_a_twentieth_of_a_disk(tmp_path: Path) -> None:
    disk = measured(tmp_path, 1 << 62)
    assert 0 < disk.reserve_bytes < 1 << 62
    assert measured(tmp_path, 5).reserve_bytes == 5
    assert disk.free_bytes > 0
    assert not measured(tmp_path, 0).is_short


async def _ended(agent: Agent, output: bytes = b"") -> str:
    """A session that ended a second after the previous one."""
    await agent.clock.advance(1)
    return (await agent.ended(output)).internal_id


def _logs(agent: Agent) -> set[str]:
    """Sessions with a sealed log."""
    sealed = {session.internal_id for session in agent.sessions.all() if session.log_sealed}
    for internal_id in sealed:
        assert agent.records.log_path(internal_id).exists()
    return sealed


def _removed(agent: Agent) -> set[str]:
    return {session.internal_id for session in agent.sessions.all() if session.container_removed}


# -- folders of one engine ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shared", "free", "for_images"),
    [
        (True, 10, 8),
        (False, 17, 5),
    ],
)
def test_space_for_images_is_that_of_their_disk_counted_once(
    tmp_path: Path, filling: Filling, shared: bool, free: int, for_images: int
) -> None:
    """Engine 29 has its images in a folder of containerd's, as a rule on the same disk."""
    filling.shared = shared
    if not shared:
        filling.free = {"images": 7 * RESERVE}
    disks = Disks(RESERVE, tmp_path, filling)
    disks.watch(str(tmp_path / "docker"), str(tmp_path / "images"))
    disks.look()
    assert disks.engine_free_bytes == free * RESERVE
    assert disks.free_image_bytes == for_images * RESERVE
