"""Messages of hosts are validated: a host may be compromised."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.agent_rpc.wire import session_in
from controlplane.domain.errors import AgentUnavailableError
from tests.support.agent.samples import a_spec
from tests.support.controlplane.fake_agent import FakeAgent
from tiltyard.agent.bounds import MAX_MEMORY_BYTES, MAX_NANO_CPUS
from tiltyard.agent.v1 import agent_pb2

SPEC = a_spec()
DEADLINE = 20.0


def a_session(**reserved: int) -> agent_pb2.Session:
    held = agent_pb2.Resources(**reserved)
    return agent_pb2.Session(format=1, state=agent_pb2.STATE_RUNNING, reservation=held)


@pytest.mark.parametrize(
    "reserved",
    [
        {"nano_cpus": -1},
        {"nano_cpus": MAX_NANO_CPUS + 1},
        {"memory_bytes": -1},
        {"memory_bytes": MAX_MEMORY_BYTES + 1},
        {"memory_bytes": 2**63 - 1},
    ],
    ids=str,
)
def test_impossible_resources_are_rejected(reserved: dict[str, int]) -> None:
    """An account whose sums overflow could not start sessions."""
    with pytest.raises(ValueError, match="is out of bounds"):
        session_in(a_session(**reserved))


def test_largest_resources_are_accepted() -> None:
    most = a_session(nano_cpus=MAX_NANO_CPUS, memory_bytes=MAX_MEMORY_BYTES)
    reservation = session_in(most).reservation
    assert reservation.nano_cpus == MAX_NANO_CPUS
    assert reservation.memory_bytes == MAX_MEMORY_BYTES


def id_of_key(mapping: Mapping[str, str]) -> int:
    """Return the identity of the only key."""
    [key] = mapping
    return id(key)


def test_shared_strings_are_interned() -> None:
    """A control plane has a hundred thousand sessions in memory."""
    sent = a_session(nano_cpus=10**9)
    sent.image = "game@sha256:0"
    sent.host = "192.0.2.1"
    sent.identity.application = "game"
    sent.identity.labels["mode"] = sent.injected_env["TILTYARD_IP"] = "1"
    data = sent.SerializeToString()
    one, other = (session_in(agent_pb2.Session.FromString(data)) for _ in range(2))
    assert one == other
    assert one.image is other.image
    assert one.host is other.host
    assert one.reservation is other.reservation
    assert one.identity.application is other.identity.application
    assert id_of_key(one.identity.labels) == id_of_key(other.identity.labels)
    assert id_of_key(one.injected_env) == id_of_key(other.injected_env)


class Mistaken(FakeAgent):
    """Answers with another session than requested."""

    def _make(self, request: agent_pb2.StartSessionRequest) -> agent_pb2.Session:
        made = super()._make(request)
        self.sessions[request.internal_id].internal_id = made.internal_id = "another"
        return made


async def test_answer_for_another_session_is_rejected(tmp_path: Path) -> None:
    agent = Mistaken(tmp_path)
    agent.images = [SPEC.image]
    await agent.start()
    client = AgentClient(agent.address)
    with pytest.raises(AgentUnavailableError, match="another session"):
        await client.start_session("one", SPEC, DEADLINE)
    with pytest.raises(AgentUnavailableError, match="another session"):
        await client.stop_session("one", DEADLINE, discard=False)
    await client.close()
    await agent.stop()
