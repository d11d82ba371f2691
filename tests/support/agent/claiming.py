"""Claims over a stream of their own."""

from typing import Any

from tiltyard.agent.v1 import agent_pb2 as pb


async def claimed(stub: Any, claim: pb.Claim) -> pb.ClaimResult:
    """Return the result of one claim."""
    call = stub.ClaimSessions()
    await call.write(pb.ClaimSessionsRequest(claims=[claim]))
    response = await call.read()
    call.cancel()
    result: pb.ClaimResult = response.results[0]
    return result


def reason_of(result: pb.ClaimResult) -> str:
    """Return why a claim failed."""
    assert not result.HasField("session")
    return pb.ErrorReason.Name(result.reason).removeprefix("ERROR_REASON_")
