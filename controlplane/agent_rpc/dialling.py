"""How agents are dialled: by unix socket where the settings declare them, else by mutual TLS."""

from dataclasses import dataclass
from functools import partial

from controlplane.agent_rpc.client import AgentClient, Credentials
from controlplane.metrics.agents import AgentCalls
from controlplane.pki.authority import agent_host
from controlplane.pki.issuer import Issuer
from controlplane.pki.tickets import TicketKey
from controlplane.storage.tables.fleet import AgentRow


@dataclass(frozen=True, slots=True)
class Dialler:
    """Makes the clients of agents, with the certificates that the issuer has now.

    What a client starts or claims on its host has a ticket of the key.
    """

    issuer: Issuer
    ticket_key: TicketKey
    calls: AgentCalls | None = None

    def client(self, row: AgentRow) -> AgentClient:
        """Make the client of an agent."""
        make_ticket = partial(self.ticket_key.ticket, row.name)
        return AgentClient(row.address, self.credentials(row), self.calls, make_ticket)

    def credentials(self, row: AgentRow) -> Credentials | None:
        """Give what an enrolled agent is dialled with: its name and no other's is accepted.

        It may show a certificate of any authority that is trusted, since the answer may have been
        lost that it moved from one to the other; it is called by that which it is known to trust.
        """
        if row.id is None:
            return None
        caller = self.issuer.caller_of(row.authority)
        return Credentials(
            authority=self.issuer.authorities.trusted,
            certificate=caller.certificate,
            key=caller.key,
            host=agent_host(row.id),
        )
