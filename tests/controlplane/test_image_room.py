"""The disks of hosts for images, of which an account has a share."""

import pytest

from controlplane.fleet.host.image_room import UNPACKED
from tests.controlplane.test_pulls import pulls_of
from tests.support.controlplane.fake_registry import LAYER, blob, image
from tests.support.controlplane.system import System, eventually, eventually_equals
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import MEBI

pytestmark = [pytest.mark.system(agents=2), pytest.mark.usefixtures("quick_pulls")]


async def test_cause_of_a_tag_beyond_the_share_of_a_disk_is_shown(system: System) -> None:
    image = await system.make_application(tag="v1", tagKeep=2)
    system.agent.image_sizes[image] = 1000
    system.agent.report_images()
    system.agent.change_host(free_image_bytes=999)
    await system.has_reported("a0", free_image_bytes=999)
    await system.enable("v2", pulled_by=system.agents[1:])
    [pull] = await pulls_of(system)
    assert pull["state"] == "no_room"
    assert pull["cause"].endswith("the images of the account fill its share of the host's disk")
    system.agent.change_host(free_image_bytes=2000)
    await eventually_equals(lambda: pulls_of(system), [])


async def test_callers_see_that_a_tag_has_no_room(system: System) -> None:
    await system.make_application(tag=None)
    for agent in system.agents:
        agent.change_host(free_image_bytes=0)
        await system.has_reported(agent.name, free_image_bytes=0)
    await system.enable("v1", pulled_by=())
    without_room = {"exists": False, "pull": "no_room"}
    await eventually_equals(lambda: system.read("/tag/local/game/v1"), without_room)
    system.agent.during_pull = system.agent.hang
    system.agent.change_host(free_image_bytes=2**40)
    pulling = {"exists": False, "pull": "pulling"}
    await eventually_equals(lambda: system.read("/tag/local/game/v1"), pulling)
    system.agents[1].change_host(free_image_bytes=2**40)
    await eventually_equals(lambda: system.read("/tag/local/game/v1"), {"exists": True})


async def test_hosts_are_given_the_size_that_an_image_may_take(system: System) -> None:
    expected: list[int] = []

    async def note(request: agent_pb2.PullImageRequest, _: object) -> None:
        expected.append(request.expected_bytes)

    await system.make_application(tag=None)
    system.agent.before_pull = note
    manifest = image(layers=[blob(LAYER, size=93)])
    system.registry.push_manifest("studio/game", "v1", manifest)
    assert (await system.enable_tag()).status == 204
    await eventually(lambda: bool(system.agent.pulled))
    assert expected == [100 * UNPACKED]


async def test_operators_see_whose_images_fill_a_host(system: System) -> None:
    of_alice = await system.make_application(account="alice")
    of_bob = await system.make_application(account="bob", repository="studio/other")
    system.agent.image_sizes.update({of_alice: 3 * MEBI, of_bob: 5 * MEBI})
    system.agent.report_images()
    system.agent.change_host(free_image_bytes=MEBI)
    path = "/operator/agent/a0"
    await system.until(path, lambda shown: shown["freeForImages"] == 1)
    shown = await system.read(path)
    assert shown["imageAccounts"] == [
        {"account": "bob", "size": 5.0},
        {"account": "alice", "size": 3.0},
    ]
    assert shown["imageAccountCount"] == 2
