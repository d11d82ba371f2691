from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.agent_rpc.dialling import Dialler
from controlplane.domain.errors import AgentUnavailableError
from controlplane.domain.hosts.agents import Agent
from controlplane.pki.authority import agent_host, agent_uri
from controlplane.pki.issuer import Issuer
from controlplane.pki.tickets import TicketKey
from tests.support.certificates import CALLS, CONTROL_PLANE, SERVES, Party, Signer, self_signed
from tests.support.controlplane.fake_agent import FakeAgent
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.runtime.clock import SystemClock

ONE = "one"
OTHER = "other"


class Deployment:
    """An authority, and an attacker with its key."""

    def __init__(self, folder: Path, issuer: Issuer) -> None:
        self.folder = folder
        self.issuer = issuer
        self.signer = Signer.of(issuer.authority.to_pem())

    def host(self, agent_id: str, life: timedelta = timedelta(hours=1)) -> Party:
        return self.signer.sign(SERVES, [agent_uri(agent_id)], [agent_host(agent_id)], life)

    def client(self, address: str, agent_id: str = ONE) -> AgentClient:
        never_read = TicketKey(Path("ticket.key"), SystemClock())
        row = Agent("host-1", address, "local", "default", agent_id, 1)
        return Dialler(self.issuer, never_read).client(row)

    @asynccontextmanager
    async def serving(
        self, party: Party | None, address: str = "127.0.0.1:0"
    ) -> AsyncIterator[FakeAgent]:
        """A host on a port, with this certificate or without TLS."""
        agent = FakeAgent(self.folder)
        server = grpc.aio.server()
        agent_pb2_grpc.add_AgentServiceServicer_to_server(agent, server)
        if party is None:
            port = server.add_insecure_port(address)
        else:
            pair = (party.key, party.certificate)
            trusted = self.issuer.authority.certificate
            shown = grpc.ssl_server_credentials([pair], trusted, require_client_auth=True)
            port = server.add_secure_port(address, shown)
        agent.address = address.replace("127.0.0.1:0", f"127.0.0.1:{port}")
        await server.start()
        try:
            yield agent
        finally:
            await server.stop(0)


@pytest.fixture
def deployment(tmp_path: Path, issuer: Issuer) -> Deployment:
    return Deployment(tmp_path, issuer)


async def answers(client: AgentClient) -> bool:
    """Return whether a host answers."""
    stream = client.watch("", 0)
    try:
        async for _ in stream:
            return True
        return False
    finally:
        await stream.aclose()
        await client.close()


async def test_dialled_host_is_accepted(deployment: Deployment) -> None:
    async with deployment.serving(deployment.host(ONE)) as agent:
        assert await answers(deployment.client(agent.address))
        with pytest.raises(AgentUnavailableError):  # its address alone is not enough
            await answers(deployment.client(agent.address, OTHER))


async def test_call_in_progress_outlives_a_new_connection(deployment: Deployment) -> None:
    async with deployment.serving(deployment.host(ONE)) as agent:
        client = deployment.client(agent.address)
        earlier = client.watch("", 0)
        await anext(earlier)
        client.redial()
        later = client.watch("", 0)
        await anext(later)
        agent.send_snapshot()
        await anext(earlier)
        await earlier.aclose()
        await later.aclose()
        await client.close()


async def test_address_like_a_scheme_is_dialled_over_dns(deployment: Deployment) -> None:
    """gRPC reads `unix-abstract:1` as a socket, but it is also a host and a port."""
    async with deployment.serving(deployment.host(ONE), "unix-abstract:64999") as agent:
        with pytest.raises(AgentUnavailableError):
            await answers(deployment.client(agent.address))


IMPOSTORS: dict[str, Callable[[Deployment], Party | None]] = {
    "another agent": lambda deployment: deployment.host(OTHER),
    "an expired agent": lambda deployment: deployment.host(ONE, timedelta(hours=-1)),
    "self-signed": lambda _: self_signed(SERVES, [agent_uri(ONE)], [agent_host(ONE)]),
    "another CA's": lambda _: Signer.new().sign(SERVES, [agent_uri(ONE)], [agent_host(ONE)]),
    "a caller": lambda own: own.signer.sign(CALLS, [CONTROL_PLANE], [agent_host(ONE)]),
    "without a DNS name": lambda deployment: deployment.signer.sign(SERVES, [agent_uri(ONE)]),
    "in clear": lambda _: None,
}


@pytest.mark.parametrize("kind", IMPOSTORS)
async def test_impostor_receives_no_call(deployment: Deployment, kind: str) -> None:
    async with deployment.serving(IMPOSTORS[kind](deployment)) as agent:
        with pytest.raises(AgentUnavailableError):
            await answers(deployment.client(agent.address))
