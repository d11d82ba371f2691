"""Changes that no use case of this control plane makes: they take effect as they are committed.

Each test changes rows through the store alone, as another process does.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.access.quotas import Quota
from controlplane.domain.applications.privileges import Privileges
from controlplane.domain.applications.tags import Tag
from controlplane.domain.applications.warm_pools import WarmPool
from controlplane.domain.hosts.contract import Drain
from controlplane.domain.placement.placement import NodePoolRules, Strategy
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.tables.access import accounts, tokens
from controlplane.storage.tables.applications import applications, registries, tags, warm_pools
from controlplane.storage.tables.hosts import enrolment, fleet
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import System, assert_error, eventually, token_id

OPERATOR = Actor("operator")
NOW = 1_700_000_000.0
GAME = ("alice", "game")

pytestmark = pytest.mark.system(application={})


async def change(system: System, transaction: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Run a transaction through the store alone."""
    return await system.control_plane.store.run(transaction, *args, **named)


async def size_on(system: System, size: int) -> None:
    """Wait until the host has an order of this many standbys."""

    def is_ordered() -> bool:
        orders = system.link().orders
        return sum(orders.pool_size(pool_id) for pool_id in orders.pools) == size

    await eventually(is_ordered)


@asynccontextmanager
async def following_a_log(system: System) -> AsyncIterator[str]:
    """Follow the log of the session "s" with a token of its own; yield the token."""
    system.agent.logs = [b"line\n"]
    token = await system.make_token(name="reader", scopes=["logs:read"])
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{system.control_plane.base_url}/logs?id=s&follow=true"
    async with system.http.get(url, headers=headers) as response:
        assert await response.content.readline() == b"line\n"
        yield token


@pytest.mark.system(application={}, session="s")
async def test_revoked_token_ends_its_streams(system: System) -> None:
    async with following_a_log(system) as token:
        await change(system, tokens.revoke, token_id(token), OPERATOR, NOW)
        await eventually(lambda: system.control_plane.services.streams.count == 0)


@pytest.mark.system(application={}, session="s")
async def test_missed_changes_of_tokens_end_the_streams_of_revoked_ones(system: System) -> None:
    """A change without a key says that any token may have changed."""
    async with following_a_log(system) as token:
        await system.rows("UPDATE token SET revoked_ms = 1 WHERE id = ?", token_id(token))
        system.control_plane.store.changes.publish([Change(Topic.TOKEN)])
        await eventually(lambda: system.control_plane.services.streams.count == 0)


async def test_new_tag_is_pulled(system: System) -> None:
    digest = system.registry.push("studio/game", "v2")
    image = f"{system.registry.address}/studio/game@{digest}"
    tag = Tag("v2", digest, image)
    assert await change(system, tags.enable_tag, GAME, tag, actor=OPERATOR, now=NOW)
    await eventually(lambda: system.has("a0", image))


async def test_image_is_pulled_in_a_region_that_an_application_is_given(system: System) -> None:
    await change(system, fleet.create_region, "east", OPERATOR, NOW)
    await change(
        system,
        applications.edit,
        GAME,
        lambda current: replace(current, regions=("east",)),
        actor=OPERATOR,
        now=NOW,
    )
    await eventually(lambda: not system.agent.images)
    await change(
        system,
        applications.edit,
        GAME,
        lambda current: replace(current, regions=("local",)),
        actor=OPERATOR,
        now=NOW,
    )
    await eventually(lambda: bool(system.agent.images))


async def test_warm_pool_is_kept_until_it_is_removed(system: System) -> None:
    pool = WarmPool("alice", "game", "local", 2, enabled=True)
    await change(system, warm_pools.put, pool, OPERATOR, NOW)
    await size_on(system, 2)
    await change(system, warm_pools.put, replace(pool, size=3), OPERATOR, NOW)
    await size_on(system, 3)
    await change(system, warm_pools.remove, ("alice", "game", "local"), OPERATOR, NOW)
    await size_on(system, 0)


async def test_pools_of_a_removed_account_end(system: System) -> None:
    pool = WarmPool("alice", "game", "local", 2, enabled=True)
    await change(system, warm_pools.put, pool, OPERATOR, NOW)
    await size_on(system, 2)
    await change(system, accounts.remove, "alice", OPERATOR, NOW)
    await size_on(system, 0)


async def test_rules_of_a_node_pool_apply_until_it_is_removed(system: System) -> None:
    rules = NodePoolRules(Strategy.SPREAD, Privileges(host_network=True))
    await change(system, fleet.set_node_pool, "other", rules, actor=OPERATOR, now=NOW)
    known = system.control_plane.fleet.node_pools
    await eventually(lambda: known.rules.get("other") == rules)
    await change(system, fleet.remove, "node_pool", "other", actor=OPERATOR, now=NOW)
    await eventually(lambda: "other" not in known.rules)


async def test_region_that_was_created_can_be_used(system: System) -> None:
    assert (await system.edit(regions=["local", "east"])).status == 404
    await change(system, fleet.create_region, "east", OPERATOR, NOW)
    assert (await system.edit(regions=["local", "east"])).status == 204


async def test_quota_applies_to_the_next_start(system: System) -> None:
    quota = Quota(sessions=0)
    await change(system, accounts.replace_quota, "alice", quota, actor=OPERATOR, now=NOW)
    assert_error(await system.start(), 402)


async def test_failed_pull_is_retried_with_a_changed_login(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.fleet.host.images.FIRST_WAIT", 3600.0)
    monkeypatch.setattr("controlplane.fleet.host.images.LONGEST_WAIT", 3600.0)
    system.agent.before_pull = refusing("PULL_FAILED", "denied")
    image = await system.enable("v2", pulled_by=())
    await eventually(lambda: system.link().images.failed_pull(image) is not None)
    system.agent.before_pull = None
    [registry] = (await system.control_plane.store.look(registries.find)).values()
    edited = replace(registry, auth_hosts=("auth.example",))
    await change(system, registries.put, edited, OPERATOR, NOW)
    await eventually(lambda: system.has("a0", image))


async def test_drain_is_sent_to_its_host(system: System) -> None:
    await change(system, fleet.order_drain, "a0", Drain(0, True), actor=OPERATOR, now=NOW)
    await eventually(lambda: system.agent.host.draining)
    assert system.link().state.draining


async def test_removed_agent_is_not_followed(system: System) -> None:
    await change(system, fleet.remove_agent, "a0", OPERATOR, NOW)
    await eventually(lambda: system.control_plane.fleet.host("a0") is None)


async def test_agent_with_another_address_is_dialled_there(system: System) -> None:
    link = system.link()
    moved = replace(link.state.row, address=f"{link.state.row.address}-moved")
    await change(
        system,
        fleet.declare,
        regions=(),
        node_pools=(),
        registries=(),
        agents=[moved],
    )
    await eventually(lambda: system.link() is not link)
    assert system.link().state.row.address == moved.address


async def test_renewed_certificate_is_known(system: System) -> None:
    await system.rows("UPDATE agent SET id = 'one' WHERE name = 'a0'")
    system.control_plane.store.changes.publish([Change(Topic.HOST)])
    await eventually(lambda: system.link().state.row.id == "one")
    renewed = replace(system.link().state.row, certificate_expire=NOW, authority="another")
    await change(system, enrolment.renewed, renewed, "1", NOW)
    await eventually(lambda: system.link().state.row.authority == "another")
    assert system.link().state.row.certificate_expire == NOW
