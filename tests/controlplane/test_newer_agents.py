"""An agent that was upgraded before its control plane is listed and left as it is."""

import logging

import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.errors import AgentNewerError, AgentUnavailableError
from controlplane.fleet.host import watch
from controlplane.fleet.host.downtime import Downtime
from tests.support.controlplane.system import System, eventually
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import FORMAT


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(watch.PAUSES, AgentNewerError, 0.02)


async def _upgrade(system: System) -> None:
    system.agent.host.format = FORMAT + 1
    system.agent.drop_watch()
    await system.reaches("a0", "newer")


@pytest.mark.system(application={})
async def test_newer_agent_is_listed_and_keeps_its_sessions_but_gets_none(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    """Stopped, it is unreachable as any other."""
    caplog.set_level(logging.INFO, "controlplane")
    session = (await system.start()).json["id"]
    system.control_plane.fleet.unreachable_after = 0.05
    await _upgrade(system)
    [link] = system.control_plane.fleet.hosts
    reported_at = link.reported_at
    assert "its host has format 2, and this control plane reads up to 1" in caplog.text
    assert "control planes are upgraded before agents" in caplog.text
    assert (await system.start()).status in {404, 420}
    assert len(system.agent.started) == 1
    await system.becomes(session, "server_unreachable")
    assert link.reported_at == reported_at
    assert (await system.call("GET", "/readyz")).status == 200

    system.control_plane.fleet.unreachable_after = 30.0
    system.agent.host.format = FORMAT
    await system.reaches("a0", "ready")
    await system.becomes(session, "running")
    assert (await system.start()).status == 201
    assert system.agent.stopped == []

    system.control_plane.fleet.unreachable_after = 0.05
    await _upgrade(system)
    await system.agent.stop()
    await system.reaches("a0", "unreachable")


@pytest.mark.system(application={})
async def test_one_session_of_a_newer_format_is_enough(system: System) -> None:
    session = (await system.start()).json["id"]
    [held] = system.agent.live
    system.agent.change(held.internal_id, format=FORMAT + 1)
    await system.reaches("a0", "newer")
    assert await system.status_of(session) in {"running", "server_unreachable"}
    assert system.agent.stopped == []
    system.agent.change(held.internal_id, format=FORMAT)
    await system.reaches("a0", "ready")


async def test_newer_agent_is_never_given_up_as_lost(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is responsive until the control plane is upgraded, however long that takes."""
    calls: list[str] = []

    def note(name: str) -> None:
        method = getattr(Downtime, name)

        async def noted(downtime: Downtime) -> None:
            calls.append(name)
            await method(downtime)

        monkeypatch.setattr(Downtime, name, noted)

    note("reported")
    note("missed")
    await _upgrade(system)
    calls.clear()
    await eventually(lambda: calls.count("missed") > 5)
    assert "missed missed" not in " ".join(calls)


@pytest.mark.parametrize(("number", "error"), [(2, AgentNewerError), (0, AgentUnavailableError)])
@pytest.mark.system(application={})
async def test_answer_of_an_unknown_format_is_rejected(
    system: System, number: int, error: type[AgentUnavailableError]
) -> None:
    await system.start()
    [session] = system.agent.live
    client = AgentClient(system.agent.address)
    system.agent.end(session.internal_id)
    report = agent_pb2.Report(format=number, internal_id=session.internal_id)
    system.agent.report = agent_pb2.GetReportResponse(report=report)
    with pytest.raises(error) as caught:
        await client.get_report(session.internal_id)
    assert type(caught.value) is error
    session.format = number
    with pytest.raises(error):
        await client.stop_session(session.internal_id, 5.0, discard=False)
    session.format = FORMAT
    await client.close()
