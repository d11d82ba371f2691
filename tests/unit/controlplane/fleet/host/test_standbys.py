import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controlplane.domain.hosts.contract import HostSession
from controlplane.fleet.host.standbys import Standbys
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import State

POOL = "pool"
IDS = [str(uuid.UUID(int=number)) for number in range(6)]


def standby(internal_id: str, *, ready: bool = True, **more: Any) -> HostSession:
    pool = {"ready_time": 1 if ready else None, "warm_pool": POOL, "warm_pool_revision": 1}
    return replace(SESSION, internal_id=internal_id, **(pool | more))


@pytest.mark.parametrize(
    "one",
    [
        standby(IDS[0], ready=False),
        standby(IDS[0], in_doubt=True),
        standby(IDS[0], state=State.RESTARTING),
        standby(IDS[0], state=State.EXITED),
        standby("no uuid"),
        standby(IDS[0].upper().replace("0", "A")),
        standby(IDS[0], warm_pool=""),
    ],
)
def test_unclaimable_standby_is_not_queued(one: HostSession) -> None:
    standbys = Standbys()
    standbys.note("h", standby(one.internal_id))
    standbys.note("h", one)
    assert standbys.take(POOL, lambda _: True) is None
    assert not standbys.ready_agents(POOL)


@pytest.mark.parametrize("count", [10, 1000])
def test_taking_a_standby_looks_at_no_other_host(count: int) -> None:
    standbys = Standbys()
    for number in range(count):
        standbys.note(f"h{number % 7}", standby(str(uuid.UUID(int=number))))
    asked: list[str] = []

    def is_usable(agent: str) -> bool:
        asked.append(agent)
        return True

    taken = set()
    while (found := standbys.take(POOL, is_usable)) is not None:
        _, session = found
        taken.add(session.internal_id)
    assert len(taken) == count
    assert len(asked) == count


def test_pools_change_when_standbys_come_and_go() -> None:
    standbys = Standbys()
    standbys.note("h", standby(IDS[0]))
    assert standbys.pop_changed() == {POOL}
    standbys.note("h", standby(IDS[0], ready=False))
    assert standbys.pop_changed() == set()
    standbys.note("h", standby(IDS[0], warm_pool=""))
    assert standbys.pop_changed() == {POOL}


def test_standby_counts_until_its_claim_is_over() -> None:
    standbys = Standbys()
    standbys.note("h", standby(IDS[0]))
    standbys.note("h", standby(IDS[1]))
    assert standbys.take(POOL, lambda _: True) is not None
    assert standbys.live_on(POOL, "h") == 2
    assert standbys.live_on(POOL, "other") == 0
    standbys.drop("h", IDS[0])
    assert standbys.live_on(POOL, "h") == 1


class Queues(RuleBasedStateMachine):
    """`Standbys` checked against a set of ready ones."""

    def __init__(self) -> None:
        super().__init__()
        self.standbys = Standbys()
        self.ready: dict[str, str] = {}
        self.live: dict[str, str] = {}
        self.taken: dict[str, str] = {}
        self.useless: set[str] = set()

    ids = st.sampled_from(IDS)
    agents = st.sampled_from("ab")

    def _may_speak(self, agent: str, internal_id: str) -> bool:
        return (self.live.get(internal_id) or self.taken.get(internal_id) or agent) == agent

    @rule(agent=agents, internal_id=ids, ready=st.booleans())
    def note(self, agent: str, internal_id: str, ready: bool) -> None:
        self.standbys.note(agent, standby(internal_id, ready=ready))
        if internal_id in self.taken or not self._may_speak(agent, internal_id):
            return
        self.live[internal_id] = agent
        self.ready.pop(internal_id, None)
        if ready:
            self.ready[internal_id] = agent

    @rule(agent=agents, internal_id=ids)
    def drop(self, agent: str, internal_id: str) -> None:
        self.standbys.drop(agent, internal_id)
        if self._may_speak(agent, internal_id):
            for known in (self.live, self.ready, self.taken):
                known.pop(internal_id, None)

    @rule(agent=agents)
    def leave(self, agent: str) -> None:
        self.standbys.leave(agent)
        for known in (self.live, self.ready, self.taken):
            for internal_id in [i for i, owner in known.items() if owner == agent]:
                del known[internal_id]

    @rule(agent=agents)
    def become_unusable(self, agent: str) -> None:
        self.useless.add(agent)

    @rule(agent=agents)
    def become_usable(self, agent: str) -> None:
        self.useless.discard(agent)

    @rule()
    def take(self) -> None:
        taken = self.standbys.take(POOL, lambda agent: agent not in self.useless)
        some = {i for i, agent in self.ready.items() if agent not in self.useless}
        assert (taken is None) == (not some)
        if taken is not None:
            agent = taken[0]
            internal_id = taken[1].internal_id
            assert internal_id in some
            assert self.ready.pop(internal_id) == agent
            self.taken[internal_id] = self.live.pop(internal_id)

    @invariant()
    def usable_ready_ones_are_counted(self) -> None:
        usable = [agent for agent in self.ready.values() if agent not in self.useless]
        assert self.standbys.ready_of(POOL, lambda agent: agent not in self.useless) == len(usable)

    @invariant()
    def live_ones_are_counted(self) -> None:
        for agent in ("a", "b"):
            mine = sum(owner == agent for owner in self.live.values())
            being_claimed = sum(owner == agent for owner in self.taken.values())
            assert self.standbys.live_on(POOL, agent) == mine + being_claimed
            ready = sum(owner == agent for owner in self.ready.values())
            assert len(self.standbys.ready_images(POOL, agent)) == ready
            assert self.standbys.pools_on(agent) == ({POOL} if mine else set())


TestQueues = Queues.TestCase
