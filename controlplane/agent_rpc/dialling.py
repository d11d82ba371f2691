"""Clients of agents: by unix socket if the settings declare them, else by mutual TLS."""

from dataclasses import dataclass
from functools import partial

from controlplane.agent_rpc.client import AgentClient, Credentials
from controlplane.domain.hosts.agents import Agent
from controlplane.metrics.agents import AgentCalls
from controlplane.pki.authority import agent_host
from controlplane.pki.issuer import Issuer
from controlplane.pki.tickets import TicketKey


@dataclass(frozen=True, slots=True)
class Dialler:
    """Makes the clients of agents, with the issuer's current certificates.

    Sessions that a client starts or claims get a ticket of `ticket_key`.
    """

    issuer: Issuer
    ticket_key: TicketKey
    calls: AgentCalls | None = None

    def client(self, row: Agent) -> AgentClient:
        """Create the client of an agent."""
        make_ticket = partial(self.ticket_key.ticket, row.name)
        return AgentClient(row.address, self.credentials(row), self.calls, make_ticket)

    def credentials(self, row: Agent) -> Credentials | None:
        """Return the credentials for an enrolled agent, of which only its own name is accepted.

        Its certificate may be of any trusted authority, since the answer to a move may have been
        lost. The client certificate is of the authority that it is known to trust.
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
