"""Calls to an agent over its socket, like those of a control plane."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from controlplane.agent_rpc.wire import spec_out
from tests.faults.real_host import listed, stub_of
from tests.support.agent.samples import a_spec
from tests.support.harness import AgentProcess, wait_until
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import Identity

AT_ONCE = 4  # Concurrent starts: at most the start slots of an agent
_TIMEOUT = 60.0
_POLL = 0.005


def until_reconciled(agent: AgentProcess) -> None:
    """Wait until the agent has compared its records with its engine."""
    with stub_of(agent) as stub:
        wait_until(
            lambda: stub.GetHost(pb.GetHostRequest(), timeout=_TIMEOUT).reconciled,
            "the agent has not reconciled",
            _TIMEOUT,
            _POLL,
        )


def pull(agent: AgentProcess, image: str) -> None:
    """Pull an image."""
    with stub_of(agent) as stub:
        for _ in stub.PullImage(pb.PullImageRequest(image=image), timeout=_TIMEOUT):
            pass


def start_sessions(agent: AgentProcess, image: str, count: int, ttl: float | None = None) -> None:
    """Start `count` sessions; a failed start raises gRPC's error."""
    with stub_of(agent) as stub, ThreadPoolExecutor(AT_ONCE) as callers:
        list(callers.map(lambda _: _start(stub, image, ttl), range(count)))


def processes(agent: AgentProcess) -> dict[str, int]:
    """Return the pid of every live session, by internal id."""
    with stub_of(agent) as stub:
        return {each.internal_id: each.pid for each in listed(stub, live_only=True)}


def _start(stub: Any, image: str, ttl: float | None) -> None:
    internal_id = str(uuid.uuid4())
    labels = {"mode": "ranked", "lobby": "001"}
    named = ("default", f"match-{internal_id}", "arena", "v1", "local", labels)
    identity = Identity(*named, ticket=bytes(32).hex())
    spec = a_spec(identity=identity, image=image, args=("--lines-per-second", "0"), ttl=ttl)
    request = pb.StartSessionRequest(internal_id=internal_id, spec=spec_out(spec))
    stub.StartSession(request, timeout=_TIMEOUT)
