"""A deployment whose authority is rotated, with the attacks of a thief of its key."""

from typing import Any

import grpc

from controlplane.pki.authority import agent_host
from tests.flow.enrolled import Enrolling
from tests.support.agent.served import WholeAgent
from tests.support.certificates import CALLS, CONTROL_PLANE, Party, Signer
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc

DEADLINE = 10.0


class Rotating(Enrolling):
    """The calls of an operator on the authority, and attacks with its stolen key."""

    async def status(self) -> dict[str, Any]:
        return dict((await self.operate("GET", "/authority")).json)

    async def rotate(self, **body: bool) -> dict[str, Any]:
        return await self._order("rotate", body)

    async def finish(self, **body: bool) -> dict[str, Any]:
        return await self._order("finish", body)

    async def _order(self, what: str, body: dict[str, bool]) -> dict[str, Any]:
        return dict((await self.operate("POST", f"/authority/{what}", json=body)).expect(200).json)

    async def all_move(self) -> None:
        """Wait until all hosts trust the current authority alone."""
        await self.until("/operator/authority", lambda authority: authority["waiting"] == [])

    def signer(self) -> Signer:
        """The current key in the hands of an attacker."""
        return Signer.of(self.control_plane.issuer.authority.to_pem())

    async def admits(self, host: WholeAgent, caller: Party) -> bool:
        """Return whether a host accepts a new connection with these credentials."""
        async with await self.connection(host, caller) as channel:
            return await answers(channel)

    async def connection(self, host: WholeAgent, caller: Party) -> grpc.aio.Channel:
        """Open a new connection to a host with its current credentials."""
        identity = await self.identity(host)
        shown = grpc.ssl_channel_credentials(identity.authority, caller.key, caller.certificate)
        name = agent_host(identity.uri.split("/")[-1])
        options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.secure_channel(host.config.rpc_listen, shown, options=options)


async def answers(channel: grpc.aio.Channel) -> bool:
    """Return whether a host answers over a connection."""
    stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
    try:
        await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return True


def a_caller(signer: Signer) -> Party:
    return signer.sign(CALLS, [CONTROL_PLANE])
