"""The standbys that hosts report, and the queues of those that are ready to be claimed.

A taken standby is queued again only after it was dropped and reported, so that two callers
never get the same one.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.domain.hosts.contract import HostSession

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
"""The form of a standby's id, which becomes the id of a session: callers see it."""

_Queue = OrderedDict[str, HostSession]
"""The ready standbys of a pool on one host by internal id, in FIFO order."""


@dataclass(slots=True)
class _Pool:
    queues: OrderedDict[str, _Queue] = field(default_factory=OrderedDict)
    """The queue of each agent, without empty ones. Claims empty the first usable queue first."""
    live: dict[str, dict[str, HostSession]] = field(default_factory=dict)
    """The standbys of each agent by internal id, ready or not, except taken ones."""


class Standbys:
    """Owns the standbys of all hosts."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}
        self._pools_of: dict[str, set[str]] = {}
        self._where: dict[str, tuple[str, str]] = {}
        self._taken: set[str] = set()
        self._taken_on: Counter[tuple[str, str]] = Counter()  # By agent and pool
        self._changed: set[str] = set()
        """Pools of which standbys came or went since `pop_changed`."""

    def note(self, agent: str, session: HostSession) -> None:
        """Apply a host's report of a session."""
        internal_id = session.internal_id
        if not session.is_standby or session.state.ended:
            self.drop(agent, internal_id)
            return
        if internal_id in self._taken or self._where.get(internal_id, (agent,))[0] != agent:
            return
        if self._where.get(internal_id) != (agent, session.warm_pool):
            self.drop(agent, internal_id)
        if internal_id not in self._where:
            self._changed.add(session.warm_pool)
        self._where[internal_id] = (agent, session.warm_pool)
        self._pools_of.setdefault(agent, set()).add(session.warm_pool)
        pool = self._pools.setdefault(session.warm_pool, _Pool())
        pool.live.setdefault(agent, {})[internal_id] = session
        if _is_claimable(session):
            pool.queues.setdefault(agent, OrderedDict())[internal_id] = session
        else:
            _leave_queue(pool, agent, internal_id)

    def drop(self, agent: str, internal_id: str) -> None:
        """Forget a standby that no longer exists, became a session, or was taken but not claimed.

        A standby that was not claimed is queued again when the host reports it.
        """
        if self._where.get(internal_id, (agent,))[0] != agent:
            return  # another host's
        if internal_id in self._taken:
            self._taken.discard(internal_id)
            where = self._where[internal_id]
            self._taken_on[where] -= 1
            if not self._taken_on[where]:
                del self._taken_on[where]
        self._remove(internal_id)

    def leave(self, agent: str) -> None:
        """Forget all standbys of a host."""
        for pool_id in list(self._pools_of.get(agent, ())):
            for internal_id in list(self._pools[pool_id].live.get(agent, ())):
                self._remove(internal_id)
        for internal_id in [i for i in self._taken if self._where[i][0] == agent]:
            self.drop(agent, internal_id)

    def take(
        self, pool_id: str, is_usable: Callable[[str], bool]
    ) -> tuple[str, HostSession] | None:
        """Take the first ready standby of a pool on a host whose agent `is_usable`."""
        agent = next(filter(is_usable, self.ready_agents(pool_id)), None)
        if agent is None:
            return None
        internal_id, standby = next(iter(self._pools[pool_id].queues[agent].items()))
        self._remove(internal_id)
        self._taken.add(internal_id)
        self._where[internal_id] = (agent, pool_id)
        self._taken_on[agent, pool_id] += 1
        return agent, standby

    def ready_of(self, pool_id: str, is_usable: Callable[[str], bool]) -> int:
        """Count the standbys of a pool that can be claimed now."""
        agents = filter(is_usable, self.ready_agents(pool_id))
        return sum(len(self._pools[pool_id].queues[agent]) for agent in agents)

    def ready_agents(self, pool_id: str) -> list[str]:
        """Return the agents of the hosts with ready standbys of a pool."""
        pool = self._pools.get(pool_id)
        return [] if pool is None else list(pool.queues)

    def live_on(self, pool_id: str, agent: str) -> int:
        """Count the standbys of a pool on a host, ready or not, and those being claimed."""
        pool = self._pools.get(pool_id)
        live = 0 if pool is None else len(pool.live.get(agent, ()))
        return live + self._taken_on.get((agent, pool_id), 0)

    def pop_changed(self) -> set[str]:
        """Return the pools of which standbys came or went since the last call."""
        changed = self._changed
        self._changed = set()
        return changed

    def ready_images(self, pool_id: str, agent: str) -> tuple[str, ...]:
        """Return the image of each ready standby of a pool on a host."""
        pool = self._pools.get(pool_id)
        queue = None if pool is None else pool.queues.get(agent)
        return tuple(standby.image for standby in (queue or {}).values())

    def pools_on(self, agent: str) -> frozenset[str]:
        """Return the ids of the pools with standbys on a host."""
        return frozenset(self._pools_of.get(agent, ()))

    def _remove(self, internal_id: str) -> None:
        where = self._where.pop(internal_id, None)
        if where is not None:
            self._changed.add(where[1])
        pool = None if where is None else self._pools.get(where[1])
        if where is None or pool is None:
            return
        agent, pool_id = where
        _leave_queue(pool, agent, internal_id)
        live = pool.live.get(agent)
        if live is None or live.pop(internal_id, None) is None or live:
            return
        del pool.live[agent]
        self._pools_of[agent].discard(pool_id)
        if not pool.live:
            del self._pools[pool_id]


def _is_claimable(standby: HostSession) -> bool:
    return (
        standby.is_ready
        and not standby.in_doubt
        and _UUID.fullmatch(standby.internal_id) is not None
    )


def _leave_queue(pool: _Pool, agent: str, internal_id: str) -> None:
    queue = pool.queues.get(agent)
    if queue is not None and queue.pop(internal_id, None) is not None and not queue:
        del pool.queues[agent]
