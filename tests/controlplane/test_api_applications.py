"""Applications, their tags and their locations: made, listed and refused."""

from typing import Any

import aiohttp
import pytest

from controlplane.domain.hosts.host_latency import MAX_MISSES
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import (
    APPLICATION,
    System,
    assert_error,
    eventually,
    eventually_equals,
)

pytestmark = pytest.mark.system(agents=2)


async def test_an_application_is_made_and_listed(system: System) -> None:
    body = APPLICATION | {"repository": f"{system.registry.address}/studio/game"}
    made = await system.call("POST", "/application", json=body)
    assert made.status == 201
    assert made.json == {}
    assert (await system.read("/application"))["applications"] == [APPLICATION]
    again = assert_error(await system.call("POST", "/application", json=body), 409)
    assert "owner" not in again.text
    assert (await system.call("POST", "/application", account="bob", json=body)).status == 201
    assert await system.read("/region") == {"regions": ["elsewhere", "local"]}


async def test_a_bad_application_is_refused(system: System) -> None:
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        (
            {"repository": "../x", "nodePool": "no", "regions": ["local", "no"]},
            ("repository", "nodePool", "regions[1]"),
        ),
        (
            {"registry": "no", "nodePool": "no", "regions": ["local", "no"]},
            ("registry", "nodePool", "regions[1]"),
        ),
    ]
    for changes, fields in cases:
        answer = await system.call("POST", "/application", json=APPLICATION | changes)
        assert_error(answer, 422, *fields)
    assert await system.read("/application") == {"applications": []}


async def test_the_newest_pulled_tag_runs(system: System) -> None:
    old = await system.make_application()
    assert [set(agent.pulled) for agent in system.agents] == [{old}, {old}]
    for agent in system.agents:
        agent.before_pull = refusing("REGISTRY_UNAVAILABLE")
    new = await system.enable("v2", pulled_by=())
    assert_error(await system.start(version="v2"), 404)
    assert (await system.start(id="old")).status == 201
    assert {s.image for a in system.agents for s in a.live} == {old}
    for agent in system.agents:
        agent.before_pull = None
    await eventually(lambda: all(system.has(agent.name, new) for agent in system.agents))
    assert (await system.start(id="new")).status == 201
    assert (await system.read("/session/new"))["tag"] == "v2"
    assert (await system.start(version="v1")).status == 201


async def test_a_host_that_joins_later_catches_up(system: System) -> None:
    late = system.agents.pop()
    await late.stop()
    image = await system.make_application()
    late.pulled.clear()
    await late.start()
    await eventually(lambda: system.has(late.name, image))
    assert set(late.pulled) == {image}


async def test_a_tag_that_the_registry_hides_is_404(system: System) -> None:
    await system.make_application(tag=None)
    system.registry.hides = True
    assert_error(await system.enable_tag(), 404)


async def test_a_tag_of_a_failing_registry_is_503(system: System) -> None:
    await system.make_application(tag=None)
    system.registry.status = 500
    assert_error(await system.enable_tag(), 503)
    system.registry.status = 200
    system.registry.hides = True
    system.registry.token_status = 500
    assert_error(await system.enable_tag(), 503)


async def test_a_tag_of_an_unresponsive_registry_is_504(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.registries.http.TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    await system.make_application(tag=None)
    system.registry.hangs = True
    assert_error(await system.enable_tag(), 504)


async def test_tags_and_locations_are_shown(system: System) -> None:
    await system.make_application()
    for path, exists in (("local/game/v1", True), ("local/game/v2", False)):
        assert await system.read(f"/tag/{path}") == {"exists": exists}
    for path in ("elsewhere/game/v1", "local/none/v1"):
        assert_error(await system.call("GET", f"/tag/{path}"), 404)
    assert_error(await system.call("GET", "/tag/local/game/-"), 400)
    found = await system.call("GET", "/available-location/game")
    assert found.json == {"locations": [{"id": "local", "ips": ["192.0.2.1"]}]}
    assert found.headers["Cache-Control"] == "no-store"
    assert_error(await system.call("GET", "/available-location/none"), 404)
    for agent in system.agents:
        agent.change_host(free_sessions=0)
    await system.until("/available-location/game", lambda found: found == {"locations": []})


async def addresses(system: System) -> Any:
    """Return the addresses that players may ping, by region."""
    found = (await system.read("/available-location/game"))["locations"]
    return {location["id"]: location["ips"] for location in found}


@pytest.mark.system(application={})
async def test_addresses_that_do_not_answer_are_omitted_and_their_region_stays(
    system: System,
) -> None:
    system.agent.host.latency_addresses[:] = ["192.0.2.1", "192.0.2.2"]
    system.agent.change_host()
    both = {"local": ["192.0.2.1", "192.0.2.2"]}
    await eventually_equals(lambda: addresses(system), both)
    for _ in range(MAX_MISSES):
        system.link().state.latency.note("192.0.2.1", None)
    assert await addresses(system) == {"local": ["192.0.2.2"]}
    for _ in range(MAX_MISSES):
        system.link().state.latency.note("192.0.2.2", None)
    assert await addresses(system) == {"local": []}
    shown = await system.read("/operator/agent/a0")
    assert shown["unresponsiveAddresses"] == ["192.0.2.1", "192.0.2.2"]
    assert shown["latency"] is None
    assert (await system.start()).status == 201
