"""The rules of node pools in memory: how each fills its hosts, and what its sessions may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.domain.placement import NodePoolRules, Strategy
from tiltyard.contract import NetworkMode


@dataclass(slots=True)
class NodePools:
    """The rules of each node pool, as the store has them or as they were set since."""

    host_network_pools: frozenset[str] = frozenset()
    """Pools in which the host's network is allowed whatever the store says."""
    _rules: dict[str, NodePoolRules] = field(default_factory=dict)

    def load(self, rules: Mapping[str, NodePoolRules]) -> None:
        """Take in the rules that the store has."""
        self._rules = dict(rules)

    def set(self, name: str, rules: NodePoolRules) -> None:
        """Follow these rules from the next start on."""
        self._rules[name] = rules

    def drop(self, name: str) -> None:
        """Forget the rules of a node pool that was removed."""
        self._rules.pop(name, None)

    def strategy(self, name: str) -> Strategy:
        """Return how the hosts of a node pool are filled."""
        return self._rules.get(name, NodePoolRules()).strategy

    def allows(self, name: str, network_mode: NetworkMode) -> bool:
        """Return whether sessions of a node pool may be connected so; any of an unknown pool."""
        rules = self._rules.get(name)
        if network_mode is not NetworkMode.HOST or rules is None:
            return True
        return rules.host_network or name in self.host_network_pools
