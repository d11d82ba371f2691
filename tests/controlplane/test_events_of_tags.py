"""Tags that hosts have pulled, that regions can start, or whose pulls fail, are events."""

import asyncio

import pytest

from controlplane.applications import tag_log
from controlplane.domain.errors import StoreError
from controlplane.storage.engine import follower
from controlplane.storage.tables.applications import tag_places
from tests.controlplane.tag_events import attempts, become, data_of, make_other, refusing_after
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import System, eventually_equals
from tests.support.controlplane.transactions import Go, fail_once, intercept
from tests.support.hold import Hold

pytestmark = [pytest.mark.system(agents=2), pytest.mark.usefixtures("quick_pulls")]

MISSING = "the registry does not have its image, or denies access to it"


async def test_each_host_has_pulled_a_tag_once_and_the_first_makes_it_available(
    system: System,
) -> None:
    first, second = system.agents
    await system.make_application(tag=None)
    go = asyncio.Event()
    second.before_pull = refusing_after(go, "INTERNAL")
    image = await system.enable("v1", pulled_by=[first])
    await become(system, enabled=1, pulled=1, available=1)
    second.before_pull = None
    go.set()
    await become(system, enabled=1, pulled=2, available=1)
    digest = image.partition("@")[2]
    expected = [{"agent": agent, "region": "local", "digest": digest} for agent in ("a0", "a1")]
    assert await data_of(system, "tag.pulled") == expected
    assert await data_of(system, "tag.available") == [{"region": "local", "digest": digest}]
    found = await system.events("tag.available", "account, object, actor")
    assert found == [("alice", "game:v1", "controlplane")]


async def test_restart_repeats_no_event_and_what_happened_meanwhile_is_one(
    system: System,
) -> None:
    await system.make_application(tag=None)
    first, second = system.agents
    second.during_pull = second.hang
    image = await system.enable("v1", pulled_by=[first])
    await become(system, enabled=1, pulled=1, available=1)
    await system.stop_serving()
    second.during_pull = None
    second.images.append(image)
    await system.serve()
    await become(system, enabled=1, pulled=2, available=1)


async def test_failed_pull_is_an_event_once_for_each_reason_also_over_a_restart(
    system: System,
) -> None:
    await system.make_application(tag=None)
    for agent in system.agents:
        agent.before_pull = refusing("IMAGE_NOT_FOUND")
    image = await system.enable("v1", pulled_by=())
    await become(system, enabled=1, failed=1)
    (shown,) = await data_of(system, "tag.failed")
    assert shown == {
        "region": "local",
        "digest": image.partition("@")[2],
        "pull": "failed",
        "reason": MISSING,
    }
    assert (await system.read("/tag/local/game/v1"))["reason"] == shown["reason"]
    await system.restart()
    await attempts(system, "a0", 2)
    for agent in system.agents:
        agent.before_pull = refusing("DISK_FULL")
    await become(system, enabled=1, failed=2)
    last = (await data_of(system, "tag.failed"))[-1]
    assert last["pull"] == "no_room"
    assert last["reason"] is None
    system.agents[1].before_pull = None
    await become(system, enabled=1, failed=2, pulled=1, available=1)


async def test_failed_pull_names_its_host_to_operators_alone(system: System) -> None:
    await system.make_application(tag=None)
    for agent in system.agents:
        agent.before_pull = refusing("IMAGE_NOT_FOUND")
    await system.enable("v1", pulled_by=())
    await become(system, enabled=1, failed=1)
    path = "event?kind=tag.*"
    (failed,) = [e for e in (await system.read(f"/{path}"))["events"] if e["type"] == "tag.failed"]
    assert failed["actor"] == "controlplane"
    shown = (await system.read(f"/operator/{path}"))["events"]
    (failed,) = [each for each in shown if each["type"] == "tag.failed"]
    assert failed["actor"] in {"a0", "a1"}


async def test_account_does_not_see_which_hosts_have_pulled_its_tags(system: System) -> None:
    await system.make_application()
    await become(system, enabled=1, pulled=2, available=1)
    shown = (await system.read("/event?kind=tag.*"))["events"]
    assert {event["type"] for event in shown} == {"tag.enabled", "tag.available"}
    everything = (await system.read("/operator/event?kind=tag.*"))["events"]
    assert {event["account"] for event in everything} == {"alice"}


async def test_host_that_fails_is_no_event_where_another_one_has_the_image(
    system: System,
) -> None:
    await system.make_application(tag=None)
    first, second = system.agents
    go = asyncio.Event()
    second.before_pull = refusing_after(go, "IMAGE_NOT_FOUND", "studio/game")
    await system.enable("v1", pulled_by=[first])
    await become(system, enabled=1, pulled=1, available=1)
    go.set()
    await attempts(system, "a1", 2)
    await make_other(system)
    await system.enable("v1", "other", "studio/other")
    await become(system, enabled=2, pulled=3, available=2)


@pytest.mark.system(agents=2, unreachable_after=2.0)
async def test_region_that_lost_its_only_host_with_a_tag_fails_and_is_available_again(
    system: System,
) -> None:
    for agent in system.agents:
        agent.beat = 0.05
        agent.drop_watch()
    await system.make_application(tag=None)
    first, second = system.agents
    go = asyncio.Event()
    second.before_pull = refusing_after(go, "IMAGE_NOT_FOUND")
    await system.enable("v1", pulled_by=[first])
    await become(system, enabled=1, pulled=1, available=1)
    go.set()
    await first.stop()
    await become(system, enabled=1, pulled=1, available=1, failed=1)
    await first.start()
    await become(system, enabled=1, pulled=1, available=2, failed=1)


async def test_failure_is_no_event_while_a_host_that_may_have_the_image_has_not_reported(
    system: System,
) -> None:
    await system.make_application(tag=None)
    first, second = system.agents
    go = asyncio.Event()
    second.before_pull = refusing_after(go, "IMAGE_NOT_FOUND", "studio/game")
    await system.enable("v1", pulled_by=[first])
    await become(system, enabled=1, pulled=1, available=1)
    await system.stop_serving()
    await first.stop()
    go.set()
    await system.serve()
    await attempts(system, "a1", 2)
    await make_other(system)
    await system.enable("v1", "other", "studio/other", pulled_by=[second])
    await become(system, enabled=2, pulled=2, available=2)
    await first.start()
    await become(system, enabled=2, pulled=3, available=2)
    await attempts(system, "a1", 2)
    await system.enable("v2", "other", "studio/other")
    await become(system, enabled=3, pulled=5, available=3)


async def test_many_news_are_written_in_portions(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tag_log, "PORTION", 1)
    monkeypatch.setattr(tag_log, "HOSTS_IN_A_STEP", 1)
    transactions: list[Go] = []

    async def count(go: Go) -> None:
        transactions.append(go)
        await go()

    intercept(monkeypatch, tag_places.note_news, count)
    await system.make_application()
    await become(system, enabled=1, pulled=2, available=1)
    assert len(transactions) == 3


async def test_image_that_is_there_before_its_tag_is_available_at_once(system: System) -> None:
    await system.make_application(tag="v1")
    system.registry.push("studio/game", "v1")
    await become(system, enabled=1, pulled=2, available=1)
    await system.make_application(name="other", tag=None)
    (await system.enable_tag("v1", "other")).expect(204)
    await become(system, enabled=2, pulled=4, available=2)
    assert len(await system.events("tag.available", "object")) == 2


async def test_tag_that_is_withdrawn_and_enabled_again_is_available_again(
    system: System,
) -> None:
    await system.make_application(tag="v1", tagKeep=1)
    await become(system, enabled=1, pulled=2, available=1)
    await system.enable("v2")
    await become(system, enabled=2, pulled=4, available=2, withdrawn=1)
    await system.enable("v1")
    await become(system, enabled=3, pulled=6, available=3, withdrawn=2)
    written = await system.rows("SELECT DISTINCT tag FROM tag_on_host")
    assert written == await system.rows("SELECT tag FROM tag_in_region")


async def test_tag_that_is_withdrawn_before_the_event_is_written_has_none(
    system: System,
) -> None:
    await system.make_application(tag=None, tagKeep=1)
    pulls = [Hold() for _ in system.agents]
    for agent, pull in zip(system.agents, pulls, strict=True):
        agent.during_pull = pull
    await system.enable("v1", pulled_by=())
    for agent, pull in zip(system.agents, pulls, strict=True):
        await pull.reached.wait()
        agent.during_pull = None
    await system.enable("v2")
    await become(system, enabled=2, pulled=2, available=1, withdrawn=1)
    tags = await system.events("tag.available", "object")
    assert tags == [("game:v2",)]


@pytest.mark.parametrize(
    "error",
    [
        StoreError("scripted"),
        RuntimeError("scripted"),
    ],
)
async def test_events_are_written_after_an_error(
    system: System, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(follower, "FAULT_PAUSE", 0.05)
    await system.make_application(tag=None)
    for agent in system.agents:
        agent.before_pull = refusing("IMAGE_NOT_FOUND")
    for function in (tag_places.tags_in_places, tag_places.note_news):
        intercept(monkeypatch, function, fail_once(error))
    await system.enable("v1", pulled_by=())
    await become(system, enabled=1, failed=1)
    for agent in system.agents:
        agent.before_pull = None
    intercept(monkeypatch, tag_places.note_news, fail_once(error))
    await become(system, enabled=1, failed=1, pulled=2, available=1)


async def test_reports_without_other_images_write_nothing(system: System) -> None:
    await system.make_application()
    await become(system, enabled=1, pulled=2, available=1)
    before = await system.rows("SELECT number FROM event_counter")
    for agent in system.agents:
        agent.report_images()
        agent.change_host(free_sessions=3)
    await system.catches_up()
    assert await system.rows("SELECT number FROM event_counter") == before


async def test_host_that_lost_its_images_pulls_them_again(system: System) -> None:
    await system.make_application()
    await become(system, enabled=1, pulled=2, available=1)
    noted = asyncio.Event()

    async def later(_request: object, _context: object) -> None:
        await noted.wait()

    # Otherwise the host may have it again before the loss is written.
    system.agents[1].before_pull = later
    system.agents[1].images.clear()
    system.agents[1].report_images()
    await eventually_equals(lambda: system.rows("SELECT agent FROM tag_on_host"), [("a0",)])
    noted.set()
    await become(system, enabled=1, pulled=3, available=1)
