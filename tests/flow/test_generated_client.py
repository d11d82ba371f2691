"""The document is good enough to make a client of, and the client to play a session with."""

import asyncio
from pathlib import Path

import pytest

from tests.demo_game import Image
from tests.flow.generated import Game, generate, imported, play
from tests.flow.whole import Whole
from tests.support.controlplane.system import APPLICATION
from tests.support.deployment import PATIENT, application
from tests.support.harness import AgentProcess, AgentSpec, ControlPlaneProcess, Registry


async def _play(base_url: str, token: str, document: bytes, folder: Path, game: Game) -> None:
    await generate(document, folder)
    with imported(folder) as api:
        async with api.client(base_url, token) as client:
            await play(api, client, game)


async def test_a_session_is_played_with_a_generated_client(tmp_path: Path) -> None:
    async with Whole(tmp_path) as whole:
        engine = whole.engine
        whole.have_every_image()
        whole.registry.push("studio/game", "v1")

        async def started(_: str) -> None:
            [container] = whole.host.live
            engine.write_log(container, b"here we go\n")
            engine.put_file(container, "/data/save.json", b"{}")

        small = {"cpu": 1, "ram": 64}
        wanted = APPLICATION | {"limits": small, "reservation": small}
        await _play(
            whole.control_plane.base_url,
            whole.tokens["alice"],
            (await whole.call("GET", "/openapi.json")).body,
            tmp_path,
            Game(wanted, "v1", b"here we go", "/data/save.json", started),
        )


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.registry
@pytest.mark.root
def test_a_session_is_played_with_a_generated_client_on_docker(
    docker_engine: Path, registry: Registry, demo_image: Image, tmp_path: Path
) -> None:
    async def started(session_id: str) -> None:
        with client.stream("/logs", id=session_id, follow="true") as log:
            assert log.readline().startswith(b"000001 ")

    with (
        AgentProcess(docker_engine, cpu=2, ram=512, stop_grace=10) as agent,
        ControlPlaneProcess(
            [AgentSpec("host-1", agent.address)], {"local": registry.address}, **PATIENT
        ) as control_plane,
    ):
        client = control_plane.client()
        asyncio.run(
            _play(
                control_plane.base_url,
                client.token,
                client.get("/openapi.json").expect(200).body,
                tmp_path,
                Game(application(), demo_image.tag, b"000001 ", "/data/save.json", started),
            )
        )
