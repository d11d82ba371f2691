"""An account's calls of a registry that does not answer delay no other account."""

import asyncio

import pytest

from controlplane.registries.http import MAX_CONNECTIONS
from tests.support.controlplane.system import Answer, System, eventually

SHARE = MAX_CONNECTIONS // 2
SLOW = "/v2/studio/game/manifests/slow"

pytestmark = [
    pytest.mark.system(application={}),
    pytest.mark.usefixtures("patient_registry_calls"),
]


async def fill_share(system: System) -> list[asyncio.Task[Answer]]:
    """Have twice as many calls of alice hang as there are connections to the registry."""
    await system.make_application(account="bob")
    system.registry.hangs_on = "slow"
    slow = [
        asyncio.create_task(system.enable_tag("slow"), name=f"slow {number}")
        for number in range(2 * MAX_CONNECTIONS)
    ]
    await eventually(lambda: system.registry.asked.count(SLOW) == SHARE)
    return slow


async def test_an_account_holds_half_of_the_connections_to_a_registry(system: System) -> None:
    slow = await fill_share(system)
    system.registry.push("studio/game", "v2")
    (await system.enable_tag("v2", account="bob")).expect(204)
    # Nor do those that wait for a connection hold the slots of other requests of their account.
    (await system.call("GET", "/session")).expect(200)
    assert not any(task.done() for task in slow)
    assert system.registry.asked.count(SLOW) == SHARE
    for task in slow:
        task.cancel()
    system.registry.answer_again()


async def test_list_of_tags_that_another_account_waits_for_is_read_at_once(system: System) -> None:
    path = "/application/game/tags/available"
    slow = await fill_share(system)
    waiting = asyncio.create_task(system.call("GET", path), name="list")
    await eventually(lambda: "tags of studio/game in local" in names_of_tasks())
    listed = (await system.call("GET", path, account="bob")).expect(200)
    assert listed.json["tags"] == [{"version": "v1"}]
    assert not waiting.done()
    for task in (*slow, waiting):
        task.cancel()
    system.registry.answer_again()


def names_of_tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}
