"""Node pools: their records, and the rules of all of them in memory."""

from dataclasses import dataclass, field, replace

from controlplane.domain.applications.privileges import NO_PRIVILEGES, Privileges
from controlplane.domain.placement.placement import NodePoolRules, Strategy


@dataclass(frozen=True, slots=True)
class NodePool:
    """A node pool, its rules and its numbers of agents and applications."""

    name: str
    rules: NodePoolRules
    agents: int
    applications: int


@dataclass(slots=True)
class NodePools:
    """The rules of each node pool, as in the store."""

    host_network_pools: frozenset[str] = frozenset()
    """Pools for which the settings file allows host networking."""
    rules: dict[str, NodePoolRules] = field(default_factory=dict)
    """The rules of each node pool; a change applies from the next start on."""

    def strategy(self, name: str) -> Strategy:
        """Return the placement strategy of a node pool."""
        return self.rules.get(name, NodePoolRules()).strategy

    def allowed(self, name: str) -> Privileges:
        """Return what a node pool allows; an unknown pool allows nothing."""
        allowed = self.rules.get(name, NodePoolRules()).privileges
        return replace(allowed, host_network=True) if name in self.host_network_pools else allowed

    def denied(self, name: str, asked: Privileges) -> Privileges:
        """Return which privileges a node pool does not allow; an unknown pool denies none."""
        return asked.beyond(self.allowed(name)) if name in self.rules else NO_PRIVILEGES
