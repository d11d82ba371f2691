"""The rows that a fleet is made of: read at the start, then followed as they change.

A change by this process and one by another reach the fleet in the same way. What this process
alone observes of a host (its reports, its downtime, its certificate) is in memory before its row
is read again, which then changes nothing.
"""

from collections.abc import Collection
from typing import Protocol

from controlplane.domain.hosts.agents import Agent
from controlplane.domain.placement.placement import NodePoolRules
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.follower import Follower
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts import fleet as rows
from tiltyard.runtime.clock import Clock

_IMAGE_TOPICS = {Topic.APPLICATION, Topic.TAG}
_TOPICS = {Topic.HOST, Topic.NODE_POOL, Topic.REGISTRY, *_IMAGE_TOPICS}


class Followed(Protocol):
    """The fleet, as the reader of its rows changes it."""

    def set_rules(self, rules: dict[str, NodePoolRules]) -> None:
        """Replace the rules of all node pools."""

    def set_agents(self, found: Collection[Agent], read: Collection[str] | None) -> None:
        """Apply the agents in service of those that were `read`, None for all."""

    def look_at_images(self) -> None:
        """Compare actual and desired images on every host."""

    def retry_pulls(self) -> None:
        """Retry the pulls that have failed."""


class FleetRows:
    """Reads the rows of a fleet, and follows them."""

    def __init__(self, store: Store, fleet: Followed, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._follower = Follower("fleet", self._apply, clock)

    async def load(self) -> None:
        """Read the node pools and the agents, and follow them from now on.

        Raises:
            StoreError: They cannot be read.
        """
        self._store.changes.subscribe(_TOPICS, self._follower.note)
        await self._apply({Change(Topic.NODE_POOL), Change(Topic.HOST)})

    async def caught_up(self) -> None:
        """Wait until the fleet has what was committed before, or could not read it."""
        await self._follower.caught_up()

    async def close(self) -> None:
        """Stop following."""
        await self._follower.close()

    async def _apply(self, changed: Collection[Change]) -> None:
        topics = {change.topic for change in changed}
        if topics & _IMAGE_TOPICS:
            self._fleet.look_at_images()
        if Topic.NODE_POOL in topics:
            pools = await self._store.look(rows.node_pools)
            self._fleet.set_rules({pool.name: pool.rules for pool in pools})
        if Topic.REGISTRY in topics:
            self._fleet.retry_pulls()
        if Topic.HOST in topics:
            keys = [change.key for change in changed if change.topic is Topic.HOST]
            names = {key[0] for key in keys if key} if () not in keys else None
            found = await self._store.look(rows.agents, names=names)
            self._fleet.set_agents(found, names)
