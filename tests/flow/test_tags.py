"""A tag that replaces another, with both programs: games go on, old images go when they may."""

from pathlib import Path

import pytest

from tests.flow.whole import Whole
from tests.support.controlplane.system import eventually


async def test_a_host_with_very_many_images_is_followed_and_takes_sessions(
    tmp_path: Path,
) -> None:
    """One message of gRPC holds half of their names."""
    many = [f"registry.example/{'r' * 60}/{n}@sha256:{n:064x}" for n in range(40_000)]
    async with Whole(tmp_path) as system:
        for image in many:
            system.engine.add_image(image)
        game = await system.make_game()
        assert (await system.start()).status == 201
        answer = await system.call("GET", "/operator/agent")
        [host] = answer.json["agents"]
        assert (host["state"], host["imageCount"]) == ("ready", len({game, *many}))


async def test_an_old_image_goes_with_the_last_container_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.sessions.reconciler.PASS_SECONDS", 0.05)
    monkeypatch.setattr("controlplane.fleet.host.images.LONGEST_WAIT", 0.05)
    async with Whole(tmp_path, agent={"container_retention_hours": 0}) as system:
        first = await system.make_game(tagKeep=1)
        assert (await system.start(id="old")).status == 201
        second = await system.enable("v2")
        assert (await system.start(id="new")).status == 201
        described = [await system.call("GET", f"/session/{name}") for name in ("old", "new")]
        assert [answer.json["tag"] for answer in described] == ["v1", "v2"]
        assert await system.status_of("old") == "running"
        assert await system.engine.images() == {first, second}

        assert (await system.call("DELETE", "/session/old")).status == 204

        async def only_the_new_one() -> bool:
            return await system.engine.images() == {second}

        await eventually(only_the_new_one)
        assert await system.status_of("new") == "running"
        assert (await system.call("DELETE", "/session/new")).status == 204
        assert (await system.start()).status == 201
