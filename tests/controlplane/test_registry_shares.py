"""An account's calls of a registry that does not answer delay no other account."""

import asyncio

import pytest

from controlplane.registries.http import MAX_CONNECTIONS
from tests.support.controlplane.system import System, eventually

SHARE = MAX_CONNECTIONS // 2
SLOW = "/v2/studio/game/manifests/slow"

pytestmark = pytest.mark.system(application={})


async def test_an_account_holds_half_of_the_connections_to_a_registry(system: System) -> None:
    await system.make_application(account="bob")
    system.registry.hangs_on = "slow"
    slow = [
        asyncio.create_task(system.enable_tag("slow"), name=f"slow {number}")
        for number in range(2 * MAX_CONNECTIONS)
    ]
    await eventually(lambda: system.registry.asked.count(SLOW) == SHARE)
    system.registry.push("studio/game", "v2")
    (await system.enable_tag("v2", account="bob")).expect(204)
    # Nor do those that wait for a connection hold the slots of other requests of their account.
    (await system.call("GET", "/session")).expect(200)
    assert not any(task.done() for task in slow)
    assert system.registry.asked.count(SLOW) == SHARE
    for task in slow:
        task.cancel()
    system.registry.answer_again()
