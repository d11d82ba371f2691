"""How agents are dialled: by unix socket where the settings declare them, else by mutual TLS."""

from controlplane.agent_rpc.client import AgentClient, Credentials
from controlplane.metrics.agents import AgentCalls
from controlplane.pki.authority import agent_host
from controlplane.pki.issuer import Issuer
from controlplane.storage.tables.fleet import AgentRow


class Dialler:
    """Makes the clients of agents, with the certificates that the issuer has now."""

    def __init__(self, issuer: Issuer, calls: AgentCalls | None = None) -> None:
        self._issuer = issuer
        self._calls = calls

    def client(self, row: AgentRow) -> AgentClient:
        """Make the client of an agent."""
        return AgentClient(row.address, self.credentials(row), self._calls)

    def credentials(self, row: AgentRow) -> Credentials | None:
        """Give what an enrolled agent is dialled with: its name and no other's is accepted.

        It may show a certificate of any authority that is trusted, since the answer may have been
        lost that it moved from one to the other; it is called by that which it is known to trust.
        """
        if row.id is None:
            return None
        caller = self._issuer.caller_of(row.authority)
        return Credentials(
            authority=self._issuer.authorities.trusted,
            certificate=caller.certificate,
            key=caller.key,
            host=agent_host(row.id),
        )
