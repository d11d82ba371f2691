"""GET …/tags/available: the registry's tags in pages, newest version first."""

import json

import pytest
from aiohttp import ClientTimeout

from controlplane.registries import tag_lists
from tests.support.controlplane.system import System, assert_error

PATH = "/application/game/tags/available"

pytestmark = pytest.mark.system(application={"tag": None})


@pytest.fixture
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the cache: every call asks the registry."""
    monkeypatch.setattr(tag_lists, "KEPT_SECONDS", 0.0)


async def _versions(system: System, query: str = "") -> list[str]:
    return [tag["version"] for tag in (await system.read(PATH + query))["tags"]]


async def test_pages_go_through_all_tags_newest_first(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tag_lists, "KEPT_SECONDS", 3600.0)
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
    # Everything was read once: 45 tags are seven of the registry's pages.
    assert system.registry.asked == ["/v2/studio/game/tags/list"] * 7


@pytest.mark.parametrize("field", ["page", "pageSize"])
@pytest.mark.parametrize("value", [0, 1001])
async def test_pages_out_of_bounds_are_refused(system: System, field: str, value: int) -> None:
    assert_error(await system.call("GET", f"{PATH}?{field}={value}"), 422, field)


@pytest.mark.usefixtures("nothing_is_kept")
async def test_a_repository_that_the_registry_hides_has_no_tags(system: System) -> None:
    system.registry.hides = True
    assert await _versions(system) == []
    system.registry.push("studio/game", "v1")
    assert await _versions(system) == ["v1"]
    system.registry.token_status = 500
    system.registry.push("studio/other", "v1")
    assert (await system.edit(repository="studio/other")).status == 204
    assert_error(await system.call("GET", PATH), 503)


@pytest.mark.usefixtures("nothing_is_kept")
async def test_invalid_tags_are_omitted(system: System) -> None:
    system.registry.list_body = json.dumps({"tags": ["v1", "../x", "", "a" * 129, "v1"]})
    assert await _versions(system) == ["v1"]
    system.registry.list_body = json.dumps({"name": "studio/game", "tags": None})
    assert await _versions(system) == []


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        "null",
        '{"tags": 1}',
        '{"tags": [1]}',
        '{"tags": {}}',
        pytest.param("[" * 9999, id="too deep"),
    ],
)
async def test_an_invalid_list_is_a_failure_of_the_registry(system: System, body: str) -> None:
    system.registry.list_body = body
    assert_error(await system.call("GET", PATH), 503)


@pytest.mark.parametrize("part", ["[]", "{}", "1", '""'])
async def test_a_list_with_very_many_values_is_not_read(system: System, part: str) -> None:
    parts = ",".join([part] * 200_002)
    system.registry.list_body = f'{{"tags": [], "manifests": [{parts}]}}'
    assert_error(await system.call("GET", PATH), 503)


async def test_an_invalid_link_is_a_failure_of_the_registry(system: System) -> None:
    system.registry.list_body = json.dumps({"tags": ["v1"]})
    system.registry.link = '<http://[bad/>; rel="next"'
    assert_error(await system.call("GET", PATH), 503)


@pytest.mark.parametrize(
    ("status", "reported"),
    [
        (302, "302"),
        (401, "credentials"),
        (403, "403"),
        (429, "429"),
        (500, "500"),
    ],
)
async def test_the_failure_of_a_registry_is_reported(
    system: System, status: int, reported: str
) -> None:
    system.registry.status = status
    assert_error(await system.call("GET", PATH), 503, details=reported)


async def test_the_address_of_an_unreachable_registry_is_only_logged(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    await system.registry.stop()
    whole = "cannot ask registry 'local': it cannot be reached"
    assert_error(await system.call("GET", PATH), 503, whole=whole)
    (logged,) = [r for r in caplog.records if r.name == "controlplane.registries.client"]
    assert logged.levelname == "WARNING"
    assert "registry=local" in logged.getMessage()
    assert system.registry.address.rpartition(":")[2] in logged.getMessage()


@pytest.mark.usefixtures("nothing_is_kept")
async def test_a_list_is_bounded(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.registries.client.PAGE_SIZE", 2)
    monkeypatch.setattr("controlplane.registries.client.MAX_LIST_TAGS", 6)
    for number in range(6):
        system.registry.push("studio/game", f"v{number}")
    assert len(await _versions(system)) == 6
    system.registry.push("studio/game", "v6")
    assert_error(await system.call("GET", PATH), 503)
    # Larger pages must not raise the limit.
    system.registry.heeds_n = False
    system.registry.page_size = 4
    assert_error(await system.call("GET", PATH), 503)
    del system.registry.tags["studio/game", "v6"]
    assert len(await _versions(system)) == 6
    system.registry.link = "<>; rel=none"
    for size, status in ((6, 200), (7, 503)):
        system.registry.list_body = json.dumps({"tags": ["v1"] * size})
        assert (await system.call("GET", PATH)).status == status
    monkeypatch.setattr("controlplane.registries.client.MAX_ANSWER_BYTES", 10)
    assert_error(await system.call("GET", PATH), 503)


async def test_registry_chooses_how_many_pages_a_list_has(system: System) -> None:
    system.registry.page_size = 1
    for number in range(50):
        system.registry.push("studio/game", f"v{number}")
    assert len(await _versions(system, "?pageSize=1000")) == 50


@pytest.mark.parametrize("status", [403, 404])
async def test_refusal_of_a_later_page_is_a_failure_of_the_registry(
    system: System, status: int
) -> None:
    system.registry.hides = True
    system.registry.page_size = 1
    for tag in ("v1", "v2"):
        system.registry.push("studio/game", tag)
    system.registry.later_status = status
    assert_error(await system.call("GET", PATH), 503, details="page")
    system.registry.later_status = 200
    assert await _versions(system) == ["v2", "v1"]


async def test_a_page_that_is_its_own_next_page_is_the_last(system: System) -> None:
    system.registry.list_body = json.dumps({"tags": ["v1"]})
    assert await _versions(system) == ["v1"]


async def test_a_page_that_brings_nothing_new_is_the_last(system: System) -> None:
    """A registry that ignores the position may name another one each time."""
    system.registry.list_body = json.dumps({"tags": ["v1", "not a tag"]})
    system.registry.link = '</v2/x?page={page}>; rel="next"'
    assert await _versions(system) == ["v1"]
    assert system.registry.listed == 2


@pytest.mark.usefixtures("nothing_is_kept")
@pytest.mark.parametrize(
    ("limit", "of_a_page"),
    [
        ("MAX_LIST_BYTES", 39),
        ("MAX_LIST_VALUES", 6),
    ],
)
async def test_all_pages_together_are_bounded(
    system: System, monkeypatch: pytest.MonkeyPatch, limit: str, of_a_page: int
) -> None:
    system.registry.page_size = 1
    for number in range(3):
        system.registry.push("studio/game", f"v{number}")
    monkeypatch.setattr(f"controlplane.registries.client.{limit}", 3 * of_a_page)
    assert len(await _versions(system)) == 3
    monkeypatch.setattr(f"controlplane.registries.client.{limit}", 3 * of_a_page - 1)
    assert_error(await system.call("GET", PATH), 503)


async def test_a_list_has_one_time_limit(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.registries.http.TIMEOUT", ClientTimeout(total=None))
    monkeypatch.setattr("controlplane.registries.client.LIST_TIMEOUT", 0.05)
    system.registry.hangs = True
    assert_error(await system.call("GET", PATH), 504)
