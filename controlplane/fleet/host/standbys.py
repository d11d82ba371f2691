"""The standbys that hosts report, and the queues in which the ready ones wait to be claimed.

Updated by reports of hosts, one standby at a time: a claim takes the first of its pool's queue.
Pure but for its own state.

A taken standby is in no queue before it was given back and reported again, so that two callers
never get the same one.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.domain.contract import HostSession

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
"""A standby's id becomes a session's, which callers see: a host cannot make any other up."""

_Line = OrderedDict[str, HostSession]
"""The ready standbys of a pool on one host by internal id, those that came first in front."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A standby that was taken, and the agent of its host."""

    agent: str
    standby: HostSession


@dataclass(slots=True)
class _Pool:
    lines: OrderedDict[str, _Line] = field(default_factory=OrderedDict)
    """By agent, without empty ones. The first is claimed from until it is empty."""
    aside: dict[str, _Line] = field(default_factory=dict)
    """Those of hosts that were found not to be of use; back when the host is heard."""
    live: dict[str, dict[str, HostSession]] = field(default_factory=dict)
    """All standbys by agent and internal id, ready or not, without those that were taken."""


class Standbys:
    """Owns what is known of standbys."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}
        self._pools_of: dict[str, set[str]] = {}
        self._aside: set[str] = set()
        self._where: dict[str, tuple[str, str]] = {}
        self._taken: set[str] = set()

    def note(self, agent: str, session: HostSession) -> None:
        """Take in what a host says of one of its sessions."""
        internal_id = session.internal_id
        if not session.is_standby or session.state.ended:
            self.drop(agent, internal_id)
            return
        if internal_id in self._taken or self._where.get(internal_id, (agent,))[0] != agent:
            return
        if self._where.get(internal_id) != (agent, session.warm_pool):
            self.drop(agent, internal_id)
        self._where[internal_id] = (agent, session.warm_pool)
        self._pools_of.setdefault(agent, set()).add(session.warm_pool)
        pool = self._pools.setdefault(session.warm_pool, _Pool())
        pool.live.setdefault(agent, {})[internal_id] = session
        if _is_claimable(session):
            lines = pool.aside if agent in pool.aside else pool.lines
            lines.setdefault(agent, OrderedDict())[internal_id] = session
        else:
            _leave_line(pool, agent, internal_id)

    def drop(self, agent: str, internal_id: str) -> None:
        """Forget a standby that is gone, or a session by now."""
        if self._where.get(internal_id, (agent,))[0] != agent:
            return  # a host speaks for its own alone
        self._taken.discard(internal_id)
        self._remove(internal_id)

    def heard(self, agent: str) -> None:
        """Have the standbys of a host in line again, should they have been set aside."""
        if agent not in self._aside:
            return
        self._aside.discard(agent)
        for pool_id in self._pools_of.get(agent, ()):
            pool = self._pools[pool_id]
            if agent in pool.aside:
                pool.lines[agent] = pool.aside.pop(agent)

    def leave(self, agent: str) -> None:
        """Forget all of a host."""
        for pool_id in list(self._pools_of.get(agent, ())):
            for internal_id in list(self._pools[pool_id].live.get(agent, ())):
                self._remove(internal_id)
        for internal_id in [i for i in self._taken if self._where[i][0] == agent]:
            self.drop(agent, internal_id)
        self._aside.discard(agent)

    def take(self, pool_id: str, is_of_use: Callable[[str], bool]) -> Taken | None:
        """Take the first ready standby of a pool; None when there is none.

        A host that is not of use now, as `is_of_use` says of its agent, is set aside whole.
        """
        pool = self._pools.get(pool_id)
        while pool is not None and pool.lines:
            agent, line = next(iter(pool.lines.items()))
            if not is_of_use(agent):
                self.set_aside(agent)
                continue
            internal_id = next(iter(line))
            standby = line[internal_id]
            self._remove(internal_id)
            self._taken.add(internal_id)
            self._where[internal_id] = (agent, pool_id)
            return Taken(agent, standby)
        return None

    def set_aside(self, agent: str) -> None:
        """Have the standbys of a host in no line until it is heard, then behind all others."""
        self._aside.add(agent)
        for pool_id in self._pools_of.get(agent, ()):
            pool = self._pools[pool_id]
            if agent in pool.lines:
                pool.aside[agent] = pool.lines.pop(agent)

    def give_back(self, taken: Taken) -> None:
        """Let one that was not claimed be in line again when it is next noted."""
        self.drop(taken.agent, taken.standby.internal_id)

    def has_ready(self, pool_id: str) -> bool:
        """Return whether one may be ready."""
        pool = self._pools.get(pool_id)
        return pool is not None and bool(pool.lines)

    def ready_of(self, pool_id: str, is_of_use: Callable[[str], bool]) -> int:
        """Count those of a pool that can be claimed now."""
        pool = self._pools.get(pool_id)
        lines = {} if pool is None else pool.lines
        return sum(len(line) for agent, line in lines.items() if is_of_use(agent))

    def ready_agents(self, pool_id: str) -> list[str]:
        """Give the agents of the hosts in whose line some of a pool wait."""
        pool = self._pools.get(pool_id)
        return [] if pool is None else list(pool.lines)

    def live_on(self, pool_id: str, agent: str) -> int:
        """Count those of a pool on a host, ready or not."""
        pool = self._pools.get(pool_id)
        return 0 if pool is None else len(pool.live.get(agent, ()))

    def ready_images(self, pool_id: str, agent: str) -> tuple[str, ...]:
        """Give the image of each ready one of a pool on a host."""
        pool = self._pools.get(pool_id)
        line = None if pool is None else pool.lines.get(agent) or pool.aside.get(agent)
        return tuple(standby.image for standby in (line or {}).values())

    def pools_on(self, agent: str) -> frozenset[str]:
        """Give the ids of the pools that a host has standbys of."""
        return frozenset(self._pools_of.get(agent, ()))

    def _remove(self, internal_id: str) -> None:
        where = self._where.pop(internal_id, None)
        pool = None if where is None else self._pools.get(where[1])
        if where is None or pool is None:
            return
        agent, pool_id = where
        _leave_line(pool, agent, internal_id)
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


def _leave_line(pool: _Pool, agent: str, internal_id: str) -> None:
    for lines in (pool.lines, pool.aside):
        line = lines.get(agent)
        if line is not None and line.pop(internal_id, None) is not None and not line:
            del lines[agent]
