"""Invariants of a whole host in memory."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from agent.domain.sessions.session import Session
from tests.faults.invariants import OF_A_HOST, Observation, SeenContainer, session_of, violations
from tests.faults.ledger import ledger
from tests.support.agent.hosts import Agent
from tests.support.fake_engine import FakeEngine
from tiltyard.contract import EndReason, Protocol
from tiltyard.runtime.back_off import RETRY_LONGEST_SECONDS

_PASSES = 3  # Enough for what waits for a pass that waits for another


def observed(
    engine: FakeEngine,
    agent_id: str,
    sessions: Sequence[Session],
    *,
    now: float,
    ports: int,
    free_ports: int,
) -> Observation:
    """Return the current state of a host; `ports` are those of its range, TCP and UDP together."""
    return Observation(
        now=now,
        sessions=sessions,
        containers=_containers(engine, agent_id, sessions),
        living=frozenset(engine.living),
        reported={session.internal_id: session.state for session in sessions},
        ports=ports,
        free_ports=free_ports,
        more_late_seconds=float("inf"),  # its clock moves by minutes
    )


async def assert_survived(agent: Agent) -> None:
    """Check the invariants, and again after the end of all sessions."""
    for _ in range(_PASSES):
        await agent.clock.advance(RETRY_LONGEST_SECONDS)
        agent.sessions.end_due()
        await agent.pass_over()
    _assert_invariants(agent)
    live = [each.internal_id for each in agent.sessions.all() if not each.state.ended]
    stops = [asyncio.create_task(agent.sessions.stop(each, EndReason.STOPPED)) for each in live]
    while not all(stop.done() for stop in stops):
        await agent.clock.advance(RETRY_LONGEST_SECONDS)
    await asyncio.gather(*stops)
    await agent.clock.advance(RETRY_LONGEST_SECONDS)
    _assert_invariants(agent)
    assert agent.nothing_is_held(), "I11: ports, capacity or deadlines are held"
    ledger.checked |= {*OF_A_HOST, 11}


def _assert_invariants(agent: Agent) -> None:
    ports = agent.reservations.ports
    seen = observed(
        agent.engine,
        agent.runtime.agent_id,
        agent.sessions.all(),
        now=agent.clock.time(),
        ports=2 * (ports.last - ports.first + 1),
        free_ports=sum(ports.free(protocol) for protocol in Protocol),
    )
    found = violations(seen)
    assert not found, found
    recorded = [session.internal_id for session in agent.sessions.all()]
    assert agent.directories() == sorted(recorded), "I1: directories"


def _containers(
    engine: FakeEngine, agent_id: str, sessions: Sequence[Session]
) -> list[SeenContainer]:
    published = defaultdict(set)
    for address, container in engine.ports.published.items():
        published[container].add(address)
    found = [
        SeenContainer(
            each.name,
            session_of(each.container, each.name, each.labels, sessions),
            running=each.is_running,
            ports=frozenset(published[each.container]),
        )
        for each in engine.containers(agent_id)
    ]
    return [seen for seen in found if seen.internal_id]
