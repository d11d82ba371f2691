"""The reports of a host's sessions in memory, some of which are not parsed."""

from dataclasses import replace

import pytest

from controlplane.domain.hosts.contract import HostSession, Port, WrittenSession
from controlplane.domain.hosts.reported_sessions import ReportedSessions, TakenPorts
from tests.unit.controlplane.fleet.host.test_state import SESSION as REPORTED
from tiltyard.contract import Identity, Protocol

SESSION = replace(REPORTED, identity=Identity("alice", "s", "game", "v1", "local", {}), size=100)


def unreadable() -> HostSession:
    raise ValueError("out of bounds")


def unread(session: HostSession) -> WrittenSession:
    return WrittenSession(
        session.internal_id,
        session.account,
        session.application,
        session.state,
        session.ports,
        session.sequence,
        session.size,
        lambda: session,
    )


@pytest.fixture
def ports() -> TakenPorts:
    return TakenPorts()


@pytest.fixture
def sessions(ports: TakenPorts) -> ReportedSessions:
    return ReportedSessions(ports)


def taken(ports: TakenPorts) -> set[int]:
    return set(ports.by_protocol[Protocol.UDP])


def test_unread_report_takes_ports_and_counts_bytes(
    sessions: ReportedSessions, ports: TakenPorts
) -> None:
    assert sessions.note_unread(unread(SESSION), "life")
    assert taken(ports) == {20007}
    assert sessions.bytes == 100
    sessions.pop("i")
    assert taken(ports) == set()
    assert sessions.bytes == 0


def test_report_is_read_when_it_is_asked_for(sessions: ReportedSessions) -> None:
    reads: list[HostSession] = []

    def read() -> HostSession:
        reads.append(SESSION)
        return SESSION

    sessions.note_unread(unread(SESSION)._replace(read=read), "life")
    assert [session.application for session in sessions] == ["game"]
    assert reads == []
    for _ in range(2):
        seen = sessions.get("i")
        assert seen is not None
        assert seen.session is SESSION
        assert seen.incarnation == "life"
    assert reads == [SESSION]


def test_report_that_cannot_be_read_is_forgotten(
    sessions: ReportedSessions, ports: TakenPorts
) -> None:
    sessions.note_unread(unread(SESSION)._replace(read=unreadable), "life")
    assert sessions.get("i") is None
    assert "i" not in sessions
    assert taken(ports) == set()


def test_confirmed_report_is_in_its_row(sessions: ReportedSessions) -> None:
    report = unread(SESSION)
    sessions.note_unread(report, "life")
    sessions.confirm(report)
    seen = sessions.get("i")
    assert seen is not None
    assert seen.is_written


def test_confirmation_of_an_earlier_report_is_ignored(sessions: ReportedSessions) -> None:
    report = unread(SESSION)
    sessions.note_unread(report, "life")
    sessions.note_unread(unread(replace(SESSION, sequence=11)), "life")
    sessions.confirm(report)
    seen = sessions.get("i")
    assert seen is not None
    assert not seen.is_written


def test_newer_report_replaces_an_unread_one(
    sessions: ReportedSessions, ports: TakenPorts
) -> None:
    sessions.note_unread(unread(SESSION), "life")
    newer = replace(SESSION, sequence=11, ports=(Port(1, Protocol.UDP, 20008),), size=150)
    assert sessions.note(newer, "life")
    assert taken(ports) == {20008}
    assert sessions.bytes == 150


def test_newer_report_that_leaves_the_same_row_is_written(sessions: ReportedSessions) -> None:
    report = unread(SESSION)
    sessions.note_unread(report, "life")
    sessions.confirm(report)
    sessions.note(replace(SESSION, sequence=11), "life")
    seen = sessions.get("i")
    assert seen is not None
    assert seen.is_written


def test_report_of_a_session_that_is_ready_is_not_written_yet(sessions: ReportedSessions) -> None:
    report = unread(SESSION)
    sessions.note_unread(report, "life")
    sessions.confirm(report)
    sessions.note(replace(SESSION, sequence=11, ready_time=5.0), "life")
    seen = sessions.get("i")
    assert seen is not None
    assert not seen.is_written


def test_unread_report_does_not_replace_a_newer_one(sessions: ReportedSessions) -> None:
    newer = replace(SESSION, sequence=11)
    sessions.note(newer, "life")
    assert not sessions.note_unread(unread(SESSION), "life")
    seen = sessions.get("i")
    assert seen is not None
    assert seen.session is newer
