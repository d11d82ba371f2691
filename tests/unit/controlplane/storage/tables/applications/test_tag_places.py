"""What the log has of tags on hosts and in regions: each change is one event."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.tag_places import (
    Available,
    Failed,
    Pulled,
    TagNews,
    WrittenState,
)
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import accounts
from controlplane.storage.tables.applications import applications, tags
from controlplane.storage.tables.applications.tag_places import (
    note_news,
    tags_in_places,
    written_in_regions,
    written_on_hosts,
)
from controlplane.storage.tables.hosts.fleet import remove_agent
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows
from tests.unit.controlplane.storage.tables.test_noted_changes import (
    ACTOR,
    KEY,
    NEW_TAG,
    NOW,
    TAG,
    TAG_PLACE,
    begin,
)


@pytest.fixture
async def started(store: Store) -> Store:
    """An application with the tag `v1` in a region with two hosts."""
    await store.run(begin)
    return store


async def note(store: Store, *news: TagNews) -> None:
    for each in news:
        await store.run(note_news, [each], NOW)


async def events(store: Store) -> list[Any]:
    return await rows(
        store,
        "SELECT kind, actor FROM event WHERE kind LIKE 'tag.%' AND kind <> 'tag.enabled'"
        " ORDER BY sequence",
    )


async def test_pull_is_an_event_once_until_the_host_loses_the_image(started: Store) -> None:
    gone = Pulled(TAG_PLACE, "h", is_present=False)
    pulled = Pulled(TAG_PLACE, "h")
    await note(started, pulled, pulled, Pulled(TAG_PLACE, "g"), gone, gone, pulled)
    expected = [("tag.pulled", agent) for agent in ("h", "g", "h")]
    assert await events(started) == expected
    written = await started.look(written_on_hosts, [TAG.image], ["h"])
    assert written == {(TAG_PLACE.key, "h"): TAG.digest}


async def test_region_is_available_once_until_pulls_fail_there(started: Store) -> None:
    failed = Failed(TAG_PLACE, "g", "denied")
    await note(started, Available(TAG_PLACE), Available(TAG_PLACE), failed, failed)
    await note(started, Failed(TAG_PLACE, "h", ""), failed, Available(TAG_PLACE), failed)
    assert await events(started) == [
        ("tag.available", "controlplane"),
        ("tag.failed", "g"),
        ("tag.failed", "h"),
        ("tag.available", "controlplane"),
        ("tag.failed", "g"),
    ]
    [(data,)] = await rows(started, "SELECT data FROM event WHERE kind='tag.failed' AND actor='h'")
    assert json.loads(data) == {
        "region": "eu",
        "digest": TAG.digest,
        "pull": "no_room",
        "reason": None,
    }
    written = await started.look(written_in_regions, [TAG.image])
    state = WrittenState(TAG.digest, "default", reasons=frozenset({"denied"}))
    assert written == {(TAG_PLACE.key, "eu"): state}


async def test_news_of_a_moment_are_written_together(started: Store) -> None:
    news: list[TagNews] = [
        Pulled(TAG_PLACE, "h"),
        Pulled(TAG_PLACE, "unknown"),
        Available(TAG_PLACE),
    ]
    await started.run(note_news, news, NOW)
    assert await events(started) == [("tag.pulled", "h"), ("tag.available", "controlplane")]


@pytest.mark.parametrize(
    "news",
    [
        Pulled(TAG_PLACE, "h"),
        Available(TAG_PLACE),
        Failed(TAG_PLACE, "h", "x"),
    ],
)
async def test_news_of_tags_that_are_gone_are_no_events(started: Store, news: TagNews) -> None:
    earlier = news._replace(tag=TAG_PLACE._replace(digest="sha256:0"))
    withdrawn = news._replace(tag=TAG_PLACE._replace(name="v0"))
    await note(started, earlier, withdrawn)
    await started.run(accounts.remove, "alice", ACTOR, NOW)
    await note(started, news)
    assert await events(started) == []


async def test_withdrawn_tag_leaves_nothing(started: Store) -> None:
    await note(started, Pulled(TAG_PLACE, "h"), Available(TAG_PLACE))
    await started.run(tags.enable_tag, KEY, NEW_TAG, actor=ACTOR, now=NOW)
    assert await rows(started, "SELECT * FROM tag_on_host") == []
    assert await rows(started, "SELECT * FROM tag_in_region") == []


async def test_removed_host_leaves_nothing(started: Store) -> None:
    await note(started, Pulled(TAG_PLACE, "h"), Pulled(TAG_PLACE, "g"))
    await started.run(remove_agent, "g", ACTOR, NOW)
    assert await rows(started, "SELECT agent FROM tag_on_host") == [("h",)]


async def test_region_that_an_application_left_is_forgotten(started: Store) -> None:
    await note(started, Available(TAG_PLACE))

    def in_regions(*regions: str) -> Callable[[Application], Application]:
        return lambda application: replace(application, regions=regions)

    await started.run(applications.edit, KEY, in_regions("eu", "unused"), actor=ACTOR, now=NOW)
    assert await rows(started, "SELECT region FROM tag_in_region") == [("eu",)]
    await started.run(applications.edit, KEY, in_regions("unused"), actor=ACTOR, now=NOW)
    assert await rows(started, "SELECT region FROM tag_in_region") == []


async def test_tags_are_found_by_image_application_and_host(started: Store) -> None:
    assert await started.look(tags_in_places, [TAG.image], [], []) == [TAG_PLACE]
    assert await started.look(tags_in_places, [], [KEY], []) == [TAG_PLACE]
    assert await started.look(tags_in_places, [], [], ["h"]) == []
    await note(started, Pulled(TAG_PLACE, "h"))
    assert await started.look(tags_in_places, [], [], ["h"]) == [TAG_PLACE]
    assert await started.look(tags_in_places, [TAG.image], [KEY], ["h"]) == [TAG_PLACE]
    assert await started.look(tags_in_places, ["other"], [("alice", "other")], ["g"]) == []
