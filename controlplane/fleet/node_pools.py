"""The rules of node pools in memory: placement strategy and permission for host networking."""

from dataclasses import dataclass, field

from controlplane.domain.placement import NodePoolRules, Strategy
from tiltyard.contract import NetworkMode


@dataclass(slots=True)
class NodePools:
    """The rules of each node pool, as in the store."""

    host_network_pools: frozenset[str] = frozenset()
    """Pools for which the settings file allows host networking."""
    rules: dict[str, NodePoolRules] = field(default_factory=dict)
    """By node pool; a change applies from the next start on."""

    def strategy(self, name: str) -> Strategy:
        """Return the placement strategy of a node pool."""
        return self.rules.get(name, NodePoolRules()).strategy

    def allows(self, name: str, network_mode: NetworkMode) -> bool:
        """Return whether a node pool allows a network mode; an unknown pool allows all."""
        rules = self.rules.get(name)
        if network_mode is not NetworkMode.HOST or rules is None:
            return True
        return rules.host_network or name in self.host_network_pools
