"""The rules of node pools in memory: placement strategy and permission for host networking."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.domain.placement import NodePoolRules, Strategy
from tiltyard.contract import NetworkMode


@dataclass(slots=True)
class NodePools:
    """The rules of each node pool, as in the store."""

    host_network_pools: frozenset[str] = frozenset()
    """Pools for which the settings file allows host networking."""
    _rules: dict[str, NodePoolRules] = field(default_factory=dict)

    def load(self, rules: Mapping[str, NodePoolRules]) -> None:
        """Replace all rules by those in the store."""
        self._rules = dict(rules)

    def set(self, name: str, rules: NodePoolRules) -> None:
        """Apply these rules from the next start on."""
        self._rules[name] = rules

    def drop(self, name: str) -> None:
        """Forget the rules of a node pool that was removed."""
        self._rules.pop(name, None)

    def strategy(self, name: str) -> Strategy:
        """Return the placement strategy of a node pool."""
        return self._rules.get(name, NodePoolRules()).strategy

    def allows(self, name: str, network_mode: NetworkMode) -> bool:
        """Return whether a node pool allows a network mode; an unknown pool allows all."""
        rules = self._rules.get(name)
        if network_mode is not NetworkMode.HOST or rules is None:
            return True
        return rules.host_network or name in self.host_network_pools
