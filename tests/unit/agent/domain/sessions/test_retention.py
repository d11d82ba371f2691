import os
from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.errors import SessionStoppedError
from agent.domain.sessions import retention
from agent.domain.sessions.retention import Due, Rules, Shortage, due
from agent.domain.sessions.session import Session
from agent.state.tombstones import Tombstones
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import Agent, Host
from tests.support.agent.samples import a_session, a_spec, an_id
from tiltyard.contract import State

HOUR = 3600
WEEK = 7 * 86400
YEAR = 365 * 86400
RULES = Rules(container_seconds=10, log_seconds=100)


def an_ended(name: str, **changes: Any) -> Session:
    named = {"internal_id": name, "state": State.EXITED, "end_time": 1.0, "log_sealed": True}
    return a_session(**{**named, **changes})


def gone(*ended: tuple[float, Session], shortage: Shortage | None = None) -> Due:
    return due(ended, RULES, shortage=shortage or Shortage(), is_read=lambda name: name == "read")


def without_container(name: str, **changes: Any) -> Session:
    return an_ended(name, container_removed=True, **changes)


@pytest.mark.parametrize(
    ("age", "session", "expected"),
    [
        (9, an_ended("a"), Due()),
        (10, an_ended("a"), Due(containers=("a",))),
        (1000, an_ended("a", log_sealed=False), Due()),
        (1000, an_ended("a"), Due(containers=("a",))),
        (99, without_container("a"), Due()),
        (100, without_container("a"), Due(sessions=("a",))),
        (100, without_container("a", log_sealed=False), Due(sessions=("a",))),
        (100, without_container("read"), Due()),
        (-5, without_container("a"), Due()),
    ],
)
def test_each_part_goes_after_its_retention(age: float, session: Session, expected: Due) -> None:
    assert gone((age, session)) == expected


@mock.patch.object(retention, "ENDED_KEPT", 2)
def test_oldest_of_too_many_are_removed_regardless_of_age() -> None:
    ended = [(3, without_container("b")), (1, an_ended("d")), (4, an_ended("a"))]
    assert gone(*ended) == Due(containers=("a",), early=frozenset("a"))
    ended = [(3, without_container("b")), (1, an_ended("d")), (4, without_container("a"))]
    assert gone(*ended) == Due(sessions=("a",), early=frozenset("a"))


def _literally_gone(ages: dict[str, float], accounts: dict[str, str], most: int) -> set[str]:
    """A literal implementation of the rule, which removes one session at a time."""
    left = set(ages)
    while len(left) > most:
        held = Counter(accounts[each] for each in left)
        candidates = [each for each in left if held[accounts[each]] == max(held.values())]
        left.remove(max(candidates, key=lambda each: ages[each]))
    return ages.keys() - left


@given(
    st.lists(st.tuples(st.floats(0, 9), st.sampled_from("abc")), unique_by=lambda each: each[0]),
    st.integers(0, 12),
)
def test_early_removal_begins_with_the_largest(found: list[tuple[float, str]], most: int) -> None:
    """For whole sessions, containers and logs alike."""
    ages = {str(number): age for number, (age, _) in enumerate(found)}
    accounts = {str(number): account for number, (_, account) in enumerate(found)}
    expected = _literally_gone(ages, accounts, most)
    spec = a_spec()
    sessions = {
        name: replace(spec, identity=replace(spec.identity, account=account))
        for name, account in accounts.items()
    }
    bare = [(ages[name], without_container(name, spec=sessions[name])) for name in ages]
    whole = [(ages[name], an_ended(name, spec=sessions[name])) for name in ages]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "ENDED_KEPT", most)
        assert set(gone(*bare).sessions) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "SPARED_AT_ONCE", max(0, len(ages) - most))
        assert set(gone(*bare, shortage=Shortage(logs=True)).logs) == expected
        assert set(gone(*whole, shortage=Shortage(containers=True)).containers) == expected


@mock.patch.object(retention, "ENDED_KEPT", 3)
async def test_flood_from_one_account_evicts_nothing_of_another(agent: Agent) -> None:
    quiet = (await agent.ended()).internal_id
    for _ in range(4):
        await agent.clock.advance(1)
        await agent.ended(identity=replace(a_spec().identity, account="storm"))
    for _ in range(2):  # the container, then the rest
        await agent.pass_over()
    assert len(agent.directories()) == 3
    assert quiet in agent.directories()


@mock.patch.object(retention, "ENDED_KEPT", 1)
def test_unsealed_logs_do_not_count_towards_the_limit() -> None:
    ended = [(3, an_ended("a", log_sealed=False)), (2, an_ended("b"))]
    assert gone(*ended) == Due()


def test_nothing_left_is_set_without_removable_containers_and_logs() -> None:
    ended = [(1, an_ended("a", log_sealed=False)), (2, without_container("read"))]
    for shared in (True, False):
        shortage = Shortage(containers=shared, logs=True, shared=shared)
        assert gone(*ended, shortage=shortage).nothing_left
    only_engine = Shortage(containers=True)
    assert not gone(*ended, shortage=only_engine).nothing_left


def test_logs_are_removed_when_containers_are_stuck() -> None:
    one_disk = Shortage(containers=True, logs=True, shared=True)
    found = gone((3, an_ended("a")), (2, without_container("b")), shortage=one_disk)
    assert found.containers == ("a",)
    assert found.logs == ()
    stuck = an_ended("stuck")
    old = without_container("old")
    found = due(
        [(3, stuck), (2, old)], RULES, shortage=one_disk, is_read=lambda _: False, stuck={"stuck"}
    )
    assert found.containers == ("stuck",)
    assert found.logs == ("old",)
    found = due([(3, stuck)], RULES, shortage=one_disk, is_read=lambda _: False, stuck={"stuck"})
    assert found.containers == ("stuck",)
    assert found.nothing_left is True


@mock.patch.object(retention, "SPARED_AT_ONCE", 1)
def test_stuck_removals_come_last() -> None:
    ended = [(3, an_ended("stuck")), (2, an_ended("next"))]
    engines = Shortage(containers=True)
    assert due(ended, RULES, shortage=engines, is_read=lambda _: False).containers == ("stuck",)
    assert due(
        ended, RULES, shortage=engines, is_read=lambda _: False, stuck={"stuck"}
    ).containers == ("next",)


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
@pytest.mark.parametrize("restarted", [False, True])
async def test_f26_a_jump_of_the_wall_clock_neither_removes_nor_keeps_anything(
    host: Host, jump: float, restarted: bool
) -> None:
    async with host() as agent:
        internal_id = (await agent.ended()).internal_id
        host.clock.jump(jump)
        await agent.pass_over()
        assert not agent.now(internal_id).container_removed
        if not restarted:
            await _goes_in_its_time(agent, internal_id)
    if restarted:
        async with host() as agent:
            await _goes_in_its_time(agent, internal_id)


async def test_f26_after_a_boot_a_wrong_clock_removes_nothing(host: Host) -> None:
    async with host() as agent:
        internal_id = (await agent.ended()).internal_id
        damaged = agent.records.directory(an_id())
        damaged.mkdir()
        stopped = an_id()
        await Tombstones(agent.records, agent.clock).bury(stopped)
        os.utime(damaged, (host.clock.time(),) * 2)
    host.clock.reboot()
    host.clock.synchronised = False
    host.clock.jump(YEAR)
    async with host() as agent:
        assert len(agent.directories()) == 2
        assert len(list(agent.records.tombstones_dir.iterdir())) == 1
        with pytest.raises(SessionStoppedError):
            await agent.sessions.start(stopped, a_spec())
        assert not agent.now(internal_id).container_removed
        host.clock.jump(-YEAR)
        host.clock.synchronised = True
        damaged.rmdir()
        await _goes_in_its_time(agent, internal_id)


async def test_age_after_a_reboot_is_by_the_wall_clock(host: Host) -> None:
    async with host() as agent:
        internal_id = (await agent.ended()).internal_id
    await host.clock.advance(3 * HOUR)
    host.clock.reboot()
    async with host() as agent:
        assert not agent.now(internal_id).container_removed
        await agent.pass_over(after=HOUR)
        assert agent.now(internal_id).container_removed


async def _goes_in_its_time(agent: Agent, internal_id: str) -> None:
    own = agent.runtime.agent_id
    await agent.pass_over(after=4 * HOUR - 1)
    assert len(await agent.engine.list(own)) == 1
    await agent.pass_over(after=1)
    assert await agent.engine.list(own) == []
    await agent.pass_over(after=WEEK - 4 * HOUR - 1)
    assert agent.directories() == [internal_id]
    await agent.pass_over(after=1)
    assert agent.directories() == []
    await assert_survived(agent)


@mock.patch("agent.state.tombstones.TOMBSTONES_KEPT", 2)
async def test_number_of_tombstones_is_limited(agent: Agent) -> None:
    folder = agent.records.tombstones_dir
    tombstones = Tombstones(agent.records, agent.clock)
    made = [an_id() for _ in range(3)]
    for internal_id in made:
        await tombstones.bury(internal_id)
        await agent.clock.advance(1)
    assert sorted(path.name for path in folder.iterdir()) == sorted(made[1:])
    (folder / f".{made[0]}.new").touch()  # left by a killed agent
    again = Tombstones(agent.records, agent.clock)
    await again.load()
    assert sorted(path.name for path in folder.iterdir()) == sorted(made[1:])
    assert made[0] not in again
    assert made[1] in again
    assert made[2] in again


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
async def test_tombstones_last_an_hour_whatever_the_wall_clock_shows(
    agent: Agent, jump: float
) -> None:
    tombstones = Tombstones(agent.records, agent.clock)
    await tombstones.bury("young")
    agent.clock.jump(jump)
    await agent.clock.advance(HOUR - 1)
    assert "young" in tombstones
    await agent.clock.advance(1)
    assert "young" not in tombstones


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_tombstones_of_an_earlier_run_last_an_hour_by_the_wall_clock(
    agent: Agent, jump: float
) -> None:
    await Tombstones(agent.records, agent.clock).bury("young")
    for seconds, kept in ((jump - jump / HOUR, True), (jump / HOUR, False)):
        agent.clock.jump(seconds)
        again = Tombstones(agent.records, agent.clock)
        await again.load()
        assert ("young" in again) is kept
        assert any(agent.records.tombstones_dir.iterdir()) is kept
