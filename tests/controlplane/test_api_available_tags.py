"""GET …/tags/available: what the registry has, in pages, newest version first."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.tags import natural_order
from tests.controlplane.system import System, assert_error

PATH = "/application/game/tags/available"


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    async with System(tmp_path, agents=0) as running:
        await running.make_application(tag=None)
        yield running


async def _versions(system: System, query: str = "") -> list[str]:
    answer = await system.call("GET", PATH + query)
    assert answer.status == 200, answer.text
    return [tag["version"] for tag in answer.json["tags"]]


def test_versions_are_ordered_as_people_do() -> None:
    ordered = [
        "1.2",
        "1.9",
        "1.10",
        "1.10.1",
        "2",
        "latest",
        "v1.9",
        "v1.10",
        "v1.10-rc9",
        "v1.11",
    ]
    shuffled = random.Random(1).sample(ordered, len(ordered))
    assert sorted(shuffled, key=natural_order) == ordered


async def test_pages_go_through_all_tags_newest_first(system: System) -> None:
    for number in range(45):
        system.registry.push("studio/game", f"v1.{number}")
    system.registry.push("studio/other", "v9")
    newest_first = [f"v1.{number}" for number in reversed(range(45))]
    system.registry.page_size = 7  # the registry's pages are not the caller's
    assert await _versions(system) == newest_first[:20]
    assert await _versions(system, "?page=3") == newest_first[40:]
    assert await _versions(system, "?page=4") == []
    assert await _versions(system, "?page=2&pageSize=30") == newest_first[30:]
    assert await _versions(system, "?pageSize=1000") == newest_first


async def test_a_repository_that_is_not_there_has_no_tags(system: System) -> None:
    assert await _versions(system) == []


async def test_what_cannot_be_a_tag_is_left_out(system: System) -> None:
    system.registry.list_body = json.dumps({"tags": ["v1", "../x", "", "a" * 129, "v1"]})
    assert await _versions(system) == ["v1"]
    system.registry.list_body = json.dumps({"name": "studio/game", "tags": None})
    assert await _versions(system) == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("page=0", "page"),
        ("page=1001", "page"),
        ("page=1.5", "page"),
        ("page=", "page"),
        ("page=1&page=2", "page"),
        ("pageSize=0", "pageSize"),
        ("pageSize=1001", "pageSize"),
        ("pageSize=ten", "pageSize"),
    ],
)
async def test_pages_out_of_bounds_are_refused(system: System, query: str, field: str) -> None:
    assert_error(await system.call("GET", f"{PATH}?{query}"), 422, field)


@pytest.mark.parametrize(
    "body", ["", "[]", "{", "null", '{"tags": 1}', '{"tags": [1]}', '{"tags": {}}', "[" * 9999]
)
async def test_an_answer_that_is_no_list_is_a_failure_of_the_registry(
    system: System, body: str
) -> None:
    system.registry.list_body = body
    assert_error(await system.call("GET", PATH), 503)


@pytest.mark.parametrize(
    ("status", "told"), [(302, "302"), (401, "log-in"), (403, "403"), (429, "429"), (500, "500")]
)
async def test_a_registry_that_fails_is_told(system: System, status: int, told: str) -> None:
    system.registry.status = status
    answer = await system.call("GET", PATH)
    assert_error(answer, 503)
    assert told in answer.json["details"]


async def test_a_link_to_nowhere_is_a_failure_of_the_registry(system: System) -> None:
    system.registry.list_body = json.dumps({"tags": ["v1"]})
    system.registry.link = '<http://[bad/>; rel="next"'
    assert_error(await system.call("GET", PATH), 503)


async def test_a_list_is_bounded(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, Any] = {"PAGE_SIZE": 2, "MAX_PAGES": 3}
    for name, value in limits.items():
        monkeypatch.setattr(f"controlplane.registry.{name}", value)
    for number in range(6):
        system.registry.push("studio/game", f"v{number}")
    assert len(await _versions(system)) == 6
    system.registry.push("studio/game", "v6")
    assert_error(await system.call("GET", PATH), 503)
    monkeypatch.setattr("controlplane.registry.MAX_ANSWER_BYTES", 10)
    assert_error(await system.call("GET", PATH), 503)


async def test_a_registry_that_always_has_a_next_page_is_left(system: System) -> None:
    system.registry.list_body = json.dumps({"tags": ["v1"]})
    assert await _versions(system) == ["v1"]


async def test_a_silent_registry_is_left_in_time(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.registry.LIST_TIMEOUT", 0.05)
    system.registry.silent = True
    assert_error(await system.call("GET", PATH), 504)
