"""How agents are dialled: by unix socket where the settings declare them, else by mutual TLS."""

from controlplane.authority import agent_host
from controlplane.fleet.agent_client import AgentClient, Credentials
from controlplane.issuer import Issuer
from controlplane.storage.fleet_store import AgentRow


class Dialler:
    """Makes the clients of agents, with the certificates that the issuer has now."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    def client(self, row: AgentRow) -> AgentClient:
        """Make the client of an agent."""
        credentials = None if row.id is None else self.credentials(row.id)
        return AgentClient(row.address, credentials)

    def credentials(self, agent_id: str) -> Credentials:
        """Give what an enrolled agent is dialled with: its name and no other's is accepted."""
        issuer = self._issuer
        return Credentials(
            authority=issuer.authority.certificate,
            certificate=issuer.caller.certificate,
            key=issuer.caller.key,
            host=agent_host(agent_id),
        )
