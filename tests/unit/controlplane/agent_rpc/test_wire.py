"""Messages of hosts are validated: a host may be compromised."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.agent_rpc.reports import SESSIONS_AT_ONCE, KnownReports, watch_messages_in
from controlplane.agent_rpc.wire import session_in
from controlplane.domain.errors import AgentUnavailableError
from controlplane.domain.hosts.contract import (
    HostSession,
    SessionsReported,
    WatchMessage,
    WrittenSession,
)
from controlplane.domain.hosts.reported_sessions import LastReport
from controlplane.domain.hosts.written import Written
from tests.support.agent.samples import a_spec
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.tasks import running
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


def a_report_of(count: int, sequence: int) -> agent_pb2.WatchResponse:
    sessions = [a_session() for _ in range(count)]
    batch = agent_pb2.SessionBatch(sessions=sessions)
    return agent_pb2.WatchResponse(incarnation="i", sequence=sequence, sessions=batch)


def counts_of(messages: Iterable[WatchMessage]) -> list[int]:
    events = [message.event for message in messages]
    return [len(event.sessions) for event in events if isinstance(event, SessionsReported)]


def test_many_sessions_are_read_a_portion_at_a_time() -> None:
    messages = list(watch_messages_in(a_report_of(2 * SESSIONS_AT_ONCE + 1, sequence=9), 4))
    assert counts_of(messages) == [SESSIONS_AT_ONCE, SESSIONS_AT_ONCE, 1]
    assert {message.incarnation for message in messages} == {"i"}


def test_host_is_known_up_to_the_sequence_of_a_message_with_its_last_portion() -> None:
    messages = list(watch_messages_in(a_report_of(2 * SESSIONS_AT_ONCE, sequence=9), 4))
    assert [message.sequence for message in messages] == [4, 9]


def reread(seen: LastReport | None, reported: agent_pb2.Session) -> HostSession:
    """Return a session as read from a message of incarnation `i` by who has seen a report."""
    batch = agent_pb2.SessionBatch(sessions=[reported])
    response = agent_pb2.WatchResponse(incarnation="i", sequence=9, sessions=batch)
    [message] = watch_messages_in(response, 0, KnownReports(lambda _: seen))
    assert isinstance(message.event, SessionsReported)
    [session] = message.event.sessions
    return session


def test_report_that_is_known_is_not_parsed_again() -> None:
    reported = a_session()
    seen = LastReport(session_in(reported), "i")
    assert reread(seen, reported) is seen.session


@pytest.mark.parametrize(
    ("incarnation", "newer"),
    [
        ("earlier", 0),
        ("i", 1),
    ],
)
def test_report_that_is_not_known_is_parsed(incarnation: str, newer: int) -> None:
    reported = a_session()
    seen = LastReport(session_in(reported), incarnation)
    reported.sequence += newer
    reported.detail = "it has ended"
    assert reread(seen, reported) == session_in(reported)
    assert reread(None, reported) == session_in(reported)


class Reporting(FakeAgent):
    """Reports many sessions in one message."""

    async def Watch(  # noqa: N802
        self, request: agent_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[agent_pb2.WatchResponse]:
        yield a_report_of(1, sequence=4)
        yield a_report_of(3 * SESSIONS_AT_ONCE, sequence=9)


async def test_other_tasks_run_between_the_portions_of_a_message(tmp_path: Path) -> None:
    agent = Reporting(tmp_path)
    await agent.start()
    client = AgentClient(agent.address)
    steps = 0

    async def go_on() -> None:
        nonlocal steps
        while True:
            await asyncio.sleep(0)
            steps += 1

    steps_at: list[int] = []
    sequences = []
    async with running(go_on()), aclosing(client.watch("", 0)) as messages:
        with pytest.raises(AgentUnavailableError, match="ended the stream"):
            async for message in messages:
                steps_at.append(steps)
                sequences.append(message.sequence)
    assert sequences == [4, 4, 4, 9]
    assert steps_at[1] < steps_at[2]
    assert steps_at[2] < steps_at[3]
    await client.close()
    await agent.stop()


def written_of(reported: agent_pb2.Session, written: Written) -> tuple[WrittenSession, ...]:
    """Return what a message of incarnation `i` leaves unread of one session."""
    batch = agent_pb2.SessionBatch(sessions=[reported])
    response = agent_pb2.WatchResponse(incarnation="i", sequence=9, sessions=batch)
    [message] = watch_messages_in(response, 0, KnownReports(written=written))
    assert isinstance(message.event, SessionsReported)
    assert len(message.event.sessions) + len(message.event.written) == 1
    return message.event.written


def a_live_session() -> agent_pb2.Session:
    reported = a_session()
    reported.internal_id = "one"
    reported.sequence = 7
    reported.state = agent_pb2.STATE_RUNNING
    reported.identity.account = "alice"
    reported.identity.application = "game"
    reported.ports.add(protocol=agent_pb2.PROTOCOL_UDP, container_port=1, host_port=2)
    return reported


def test_report_that_is_in_its_row_is_left_unread() -> None:
    reported = a_live_session()
    [unread] = written_of(reported, Written("i", 7))
    session = session_in(reported)
    assert unread.read() == session
    assert unread.internal_id == session.internal_id
    assert unread.account == session.account
    assert unread.application == session.application
    assert unread.state is session.state
    assert unread.ports == session.ports
    assert unread.sequence == session.sequence
    assert unread.size == session.size


@pytest.mark.parametrize(
    "written",
    [
        Written("i", 6),
        Written("earlier", 7),
        Written(),
    ],
)
def test_report_that_is_not_in_its_row_is_read(written: Written) -> None:
    assert written_of(a_live_session(), written) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", agent_pb2.STATE_EXITED),
        ("state", agent_pb2.STATE_DEAD),
        ("warm_pool", "pool"),
        ("in_doubt", True),
    ],
)
def test_ended_sessions_and_standbys_are_read(field: str, value: object) -> None:
    reported = a_live_session()
    setattr(reported, field, value)
    assert written_of(reported, Written("i", 7)) == ()
