"""A host beyond the bounds of the contract, or with unexpected errors, harms only itself."""

from collections.abc import Callable

import pytest

from controlplane.domain.errors import AgentExcessError
from controlplane.domain.hosts.contract import WatchMessage
from controlplane.fleet.host import watch
from controlplane.fleet.host.images import Images
from controlplane.fleet.host.state import HostState
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.scrapes import Scraped
from tests.support.controlplane.system import System, eventually
from tiltyard.agent.bounds import MAX_DETAIL
from tiltyard.agent.v1 import agent_pb2
from tiltyard.runtime import tasks

PAUSE = 0.02  # Seconds until a faulty host is followed again

pytestmark = pytest.mark.system(agents=2, application={})


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(watch.PAUSES, AgentExcessError, PAUSE)
    monkeypatch.setattr(tasks, "FAULT_PAUSE", PAUSE)


async def faulty_host(system: System) -> FakeAgent:
    """Start a session; return its host, which is going to be the faulty one."""
    assert (await system.start(id="s")).status == 201
    [faulty] = [agent for agent in system.agents if agent.live]
    return faulty


async def others_are_served(system: System) -> None:
    """Start a session, which only the other host can take now, and list those of each account."""
    assert (await system.start()).status == 201
    for account in ("alice", "bob"):
        assert (await system.call("GET", "/session", account=account)).status == 200


def created_late(session: agent_pb2.Session) -> None:
    session.create_time.seconds = 2**62


def created_early(session: agent_pb2.Session) -> None:
    session.create_time.seconds = -(2**62)


def ended_early(session: agent_pb2.Session) -> None:
    session.state = agent_pb2.STATE_EXITED
    session.end_reason = agent_pb2.END_REASON_EXITED
    session.end_time.seconds = -(2**62)


def detailed(session: agent_pb2.Session) -> None:
    session.detail = "x" * (MAX_DETAIL + 1)


def many_ports(session: agent_pb2.Session) -> None:
    for _ in range(20_000):
        session.ports.add(protocol=agent_pb2.PROTOCOL_UDP)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (created_late, "Session.create_time"),
        (created_early, "Session.create_time"),
        (ended_early, "Session.end_time"),
        (detailed, "Session.detail"),
        (many_ports, "Session.ports"),
    ],
)
async def test_session_out_of_bounds_closes_the_stream_of_its_host_alone(
    system: System,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[agent_pb2.Session], None],
    field: str,
) -> None:
    faulty = await faulty_host(system)
    [session] = faulty.live
    change(session)
    faulty.change(session.internal_id)
    error = f"error=cannot use what the agent has sent: {field} is out of bounds"
    await eventually(lambda: error in caplog.text)
    await others_are_served(system)
    await system.stop_serving()
    caplog.clear()
    await system.serve()  # The snapshot has the session, too
    await eventually(lambda: error in caplog.text)
    await others_are_served(system)


async def test_drain_time_that_no_clock_has_is_not_believed(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = await faulty_host(system)
    faulty.host.drain_time.seconds = 2**62
    faulty.change_host(draining=True, drain_revision=1)
    await eventually(lambda: "Host.drain_time is out of bounds" in caplog.text)
    await others_are_served(system)
    [row] = await system.rows(f"SELECT draining FROM agent WHERE name='{faulty.name}'")
    assert not row[0]


async def test_a_host_is_followed_again_once_it_reports_within_its_bounds(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = await faulty_host(system)
    faulty.change_host(version="x" * 1000)
    await eventually(lambda: "Host.version is out of bounds" in caplog.text)
    faulty.change_host(version="sound")
    await system.has_reported(faulty.name, version="sound")


@pytest.mark.system(kind=Scraped, agents=2, application={})
async def test_unexpected_error_in_the_stream_of_a_host_ends_only_that(
    system: Scraped, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = await faulty_host(system)
    apply = HostState.apply
    raised: list[str] = []

    def failing(self: HostState, message: WatchMessage, now: float) -> None:
        if self.name == faulty.name and len(raised) < 3:
            raised.append(self.name)
            raise RuntimeError("as scripted")
        apply(self, message, now)

    monkeypatch.setattr(HostState, "apply", failing)
    faulty.change_host(version="odd")
    await others_are_served(system)
    await eventually(lambda: len(raised) == 3)
    assert "RuntimeError: as scripted" in caplog.text
    assert (await system.scrape()).sum("internal_errors_total") == 3
    faulty.change_host(version="sound")
    await system.has_reported(faulty.name, version="sound")
    await others_are_served(system)


async def test_unexpected_error_about_the_images_of_a_host_ends_only_that(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = await faulty_host(system)
    run = Images.run
    raised: list[str] = []

    async def failing(self: Images) -> None:
        if self.host.name == faulty.name and len(raised) < 3:
            raised.append(self.host.name)
            raise RuntimeError("as scripted")
        await run(self)

    monkeypatch.setattr(Images, "run", failing)
    await system.stop_serving()
    await system.serve()
    await eventually(lambda: len(raised) == 3)
    assert "RuntimeError: as scripted" in caplog.text
    await others_are_served(system)
    await system.enable("v2")  # which both hosts pull
