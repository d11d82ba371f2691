"""What sessions may do beyond the isolation of others, by permission of their node pool. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from tiltyard.contract import Capability


@dataclass(frozen=True, slots=True)
class Privileges:
    """The privileges of an application's sessions, or those that a node pool allows."""

    host_network: bool = False
    capabilities: frozenset[Capability] = frozenset()

    def beyond(self, allowed: "Privileges") -> "Privileges":
        """Return those of these privileges that are not among the allowed ones."""
        return Privileges(
            self.host_network and not allowed.host_network,
            self.capabilities - allowed.capabilities,
        )

    @property
    def names(self) -> Mapping[str, str]:
        """What each privilege is called, by the field of an application that asks for it."""
        found = {}
        if self.host_network:
            found["networkMode"] = "the host's network"
        if self.capabilities:
            found["capabilities"] = f"the capabilities {', '.join(sorted(self.capabilities))}"
        return found


NO_PRIVILEGES = Privileges()
