"""A claim of a standby whose newest report the caller knows is answered by its changes alone."""

import pytest

from controlplane.agent_rpc.wire import claimed_in, session_in
from tests.contract.test_agent_contract import (
    Side,
    agent,  # noqa: F401 (a fixture)
    claim_request,
)
from tests.contract.test_agent_service import pool_request
from tests.support.agent.claiming import claimed
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.wire import identity_from_proto

ITSELF = ""  # The incarnation of the agent that is asked


async def a_standby(agent: Side) -> pb.Session:  # noqa: F811
    await agent.stub.SetWarmPool(pool_request(1))
    (standby,) = await agent.standbys(1)
    return standby


def known_claim(
    agent: Side,  # noqa: F811
    standby: pb.Session,
    *,
    sequence: int,
    incarnation: str = ITSELF,
) -> pb.Claim:
    claim = claim_request(standby)
    claim.known_sequence = sequence
    claim.known_incarnation = incarnation or agent.incarnation
    return claim


async def test_claim_of_a_known_standby_returns_its_changes(agent: Side) -> None:  # noqa: F811
    standby = await a_standby(agent)
    claim = known_claim(agent, standby, sequence=standby.sequence)
    claim.identity.labels["mode"] = "ranked"
    result = await claimed(agent.stub, claim)
    assert not result.HasField("session")
    assert dict(result.claimed.injected_env)["TILTYARD_SESSION_ID"] == "m1"
    reported = await agent.becomes(standby.internal_id, lambda session: not session.warm_pool)
    identity = identity_from_proto(claim.identity)
    assert claimed_in(result.claimed, session_in(standby), identity, 0) == session_in(reported)


@pytest.mark.parametrize(
    ("behind", "incarnation"),
    [
        pytest.param(1, ITSELF, id="sequence"),
        pytest.param(0, "another", id="incarnation"),
    ],
)
async def test_claim_of_a_standby_that_is_not_known_returns_the_session(
    agent: Side,  # noqa: F811
    behind: int,
    incarnation: str,
) -> None:
    standby = await a_standby(agent)
    sequence = standby.sequence - behind
    claim = known_claim(agent, standby, sequence=sequence, incarnation=incarnation)
    result = await claimed(agent.stub, claim)
    assert not result.HasField("claimed")
    assert result.session.identity == claim.identity


async def test_repeated_claim_returns_the_session(agent: Side) -> None:  # noqa: F811
    standby = await a_standby(agent)
    claim = known_claim(agent, standby, sequence=standby.sequence)
    await claimed(agent.stub, claim)
    again = await claimed(agent.stub, claim)
    assert again.session.identity == claim.identity
    assert again.session.warm_pool == ""
    assert not again.HasField("claimed")
