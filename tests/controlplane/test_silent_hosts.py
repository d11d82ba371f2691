"""Starts while the hosts that could take them do not answer."""

import asyncio

import pytest

from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.scrapes import Scraped
from tests.support.controlplane.system import Answer, System, assert_error, eventually

QUICK = 2.0  # The start_timeout of tests in which a call to a host times out

pytestmark = pytest.mark.system(application={})


def assert_unresponsive(answer: Answer) -> None:
    """Check that an answer says that hosts do not answer, and not that they are full."""
    assert_error(answer, 420, details="not answer")
    assert answer.json["code"] == "HOSTS_UNRESPONSIVE"
    assert answer.json["message"] == "hosts in the region do not answer"
    assert answer.headers["Retry-After"] == "5"


async def reconnect(system: System, agent: FakeAgent) -> None:
    """Restart an agent whose engine has not answered yet, so that it knows no image."""
    agent.reconciled = agent.knows_images = False
    agent.host.engine_available = False
    await agent.restart()
    link = system.link(agent.name)
    await eventually(lambda: link.state.incarnation == agent.incarnation)
    await system.has_reported(agent.name, engine_available=False)


async def reconcile(system: System, agent: FakeAgent) -> None:
    """Let the engine answer: the agent reports its images and sessions."""
    agent.reconciled = agent.knows_images = True
    agent.host.engine_available = True
    agent.send_snapshot()
    await system.has_reported(agent.name, engine_available=True)


@pytest.mark.system(kind=Scraped, start_timeout=QUICK, application={})
async def test_a_host_that_does_not_answer_a_start_is_not_a_full_one(system: Scraped) -> None:
    system.agent.before_start = system.agent.hang
    assert_unresponsive(await system.start())
    scrape = await system.scrape()
    assert scrape.sum("start_refusals_total", reason="hosts_unresponsive") == 1
    assert scrape.sum("start_refusals_total", reason="no_room") == 0


@pytest.mark.system(agents=2, in_order=True, start_timeout=QUICK, application={})
async def test_a_full_host_does_not_hide_one_that_did_not_answer(system: System) -> None:
    silent, full = system.agents
    silent.before_start = silent.hang
    full.before_start = refusing("NO_CAPACITY")
    assert_unresponsive(await system.start())


@pytest.mark.system(kind=Scraped, unresponsive_after=0.5, application={})
async def test_a_host_without_reports_is_not_a_full_one(system: Scraped) -> None:
    await system.agent.stop()
    state = system.link().state
    await eventually(lambda: state.report_age(system.control_plane.fleet.now()) > 0.5)
    assert_unresponsive(await system.start())
    scrape = await system.scrape()
    assert scrape.sum("start_refusals_total", reason="hosts_unresponsive") == 1


@pytest.mark.system(unresponsive_after=0.5, application={})
async def test_a_host_that_was_full_when_it_reported_last_is_full(system: System) -> None:
    system.agent.change_host(free_sessions=0)
    await system.has_reported("a0", free_sessions=0)
    await system.agent.stop()
    state = system.link().state
    await eventually(lambda: state.report_age(system.control_plane.fleet.now()) > 0.5)
    answer = assert_error(await system.start(), 420, details="no host has capacity")
    assert answer.json["code"] == "CAPACITY_UNAVAILABLE"


@pytest.mark.system(unresponsive_after=0.3, unreachable_after=0.5, application={})
async def test_a_tag_of_an_unreachable_host_is_not_missing(system: System) -> None:
    await system.agent.stop()
    state = system.link().state
    await eventually(lambda: state.report_age(system.control_plane.fleet.now()) > 0.5)
    assert_unresponsive(await system.start(version="v1"))
    assert_error(await system.start(version="v0"), 404)


async def test_a_tag_is_not_missing_while_its_host_reconnects(system: System) -> None:
    await reconnect(system, system.agent)
    assert_unresponsive(await system.start(version="v1"))
    assert_unresponsive(await system.start())
    await reconcile(system, system.agent)
    assert (await system.start(version="v1")).status == 201


async def test_a_start_waits_for_the_images_of_a_host_that_reconnects(system: System) -> None:
    """Both programs were restarted; the engine lists containers, but no images at first."""
    await system.agent.stop()
    await system.restart()
    system.agent.knows_images = False
    await system.agent.start()
    await eventually(lambda: system.link().state.reconciled)
    under_way = system.control_plane.starts.under_way
    start = asyncio.create_task(system.start(id="s", version="v1"))
    await eventually(lambda: under_way.get("alice", "s") is not None)
    system.agent.report_images()
    assert (await start).status == 201
