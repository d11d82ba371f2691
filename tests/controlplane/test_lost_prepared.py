"""A host lost the record of a session that used a prepared container.

Its container's label has the shape alone, so that the host reports a standby in doubt.
"""

import asyncio
from typing import Any

import pytest

from tests.support.controlplane.system import System, eventually, eventually_equals
from tiltyard.agent.v1 import agent_pb2

pytestmark = pytest.mark.system(application={})
PREPARED = "aaaaaaaa-0000-4000-8000-000000000000"


async def started(system: System, **fields: Any) -> agent_pb2.Session:
    """Start a session; return what its host records."""
    (await system.start(id="match", **fields)).expect(201)
    [session] = system.agent.sessions.values()
    return session


async def lose_record(system: System, session: agent_pb2.Session) -> None:
    """Report the session as its host restores it from the label of a prepared container."""
    session.identity.CopyFrom(agent_pb2.Identity(account=session.identity.account))
    session.warm_pool = PREPARED
    session.in_doubt = True
    session.ClearField("expire_time")
    await system.agent.restart()


async def claimed(system: System) -> agent_pb2.Claim:
    await eventually(lambda: len(system.agent.claimed) == 1)
    return system.agent.claimed[0]


async def test_what_a_host_lost_of_a_session_is_repeated(system: System) -> None:
    session = await started(system, labels={"mode": "duel"}, external_id="x-1", ttl="1h")
    identity = agent_pb2.Identity()
    identity.CopyFrom(session.identity)
    await lose_record(system, session)
    claim = await claimed(system)
    assert claim.internal_id == session.internal_id
    assert claim.again
    assert claim.identity.session_id == "match"
    assert claim.identity.application == identity.application
    assert claim.identity.tag == identity.tag
    assert claim.identity.location == identity.location
    assert claim.identity.labels == identity.labels
    assert claim.identity.external_id == identity.external_id
    assert 3500 <= claim.ttl.seconds <= 3600


async def test_session_without_a_lifetime_gets_none(system: System) -> None:
    await lose_record(system, await started(system))
    assert not (await claimed(system)).HasField("ttl")


async def test_session_keeps_running_for_its_caller(system: System) -> None:
    session = await started(system)
    shown = await system.read("/session/match")
    await lose_record(system, session)
    await claimed(system)
    await eventually(lambda: not session.warm_pool)
    assert await system.read("/session/match") == shown
    assert system.agent.stopped == []


async def test_stopped_session_is_stopped_and_not_claimed(system: System) -> None:
    session = await started(system)
    await system.agent.stop()
    stopping = asyncio.create_task(system.call("DELETE", "/session/match"))
    await eventually_equals(
        lambda: system.events("session.stop_requested", "object"), [("match",)]
    )
    await lose_record(system, session)
    (await stopping).expect(204)
    assert set(system.agent.stopped) == {session.internal_id}
    assert system.agent.claimed == []


async def test_session_that_no_row_names_is_stopped(system: System) -> None:
    session = await started(system)
    unknown = agent_pb2.Session()
    unknown.CopyFrom(session)
    unknown.internal_id = "bbbbbbbb-0000-4000-8000-000000000000"
    system.agent.sessions[unknown.internal_id] = unknown
    await lose_record(system, unknown)
    await eventually(lambda: unknown.internal_id in system.agent.stopped)
    assert system.agent.claimed == []
    assert await system.status_of("match") == "running"
