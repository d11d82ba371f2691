"""A host pulls with the login that an operator stored in the control plane, over TLS."""

from contextlib import ExitStack
from pathlib import Path

from tests.docker.stack import eventually, play_round
from tests.support.controlplane.secured_registry import (
    OTHER_PASSWORD,
    USER,
    SecuredRegistry,
    make_certificate,
)
from tests.support.deployment import PATIENT, REGION, application
from tests.support.harness import AgentProcess, AgentSpec, ControlPlaneProcess, Registry
from tests.support.private_engine import PrivateEngine
from tests.support.pushed_image import push_image


def test_a_session_runs_an_image_that_needs_a_login(registry: Registry, tmp_path: Path) -> None:
    image = push_image(registry.address, "secret/game", "v1")
    with ExitStack() as stack:
        engine = stack.enter_context(PrivateEngine())
        near = engine.network.host_address
        certificate = make_certificate(tmp_path, f"IP:{near}")
        secured = stack.enter_context(
            SecuredRegistry(certificate, host=near, data=registry.folder / "data")
        )
        agent = stack.enter_context(
            AgentProcess(
                engine.socket, bind_address="0.0.0.0", public_address=engine.network.address
            )
        )
        control_plane = stack.enter_context(
            ControlPlaneProcess([AgentSpec("local", agent.address)], {}, **PATIENT)
        )
        operator = control_plane.operator
        login = {
            "address": secured.address,
            "private": True,
            "ca": Path(certificate["certificate"]).read_text(),
            "username": USER["username"],
        }
        path = "/operator/registry/secured"
        operator.put(path, login | {"password": OTHER_PASSWORD}).expect(204)
        client = control_plane.client()
        game = application("game", repository=image.repository, registry="secured")
        client.post("/application", game).expect(201)
        client.post("/application/game/tags", {"tag": "v1"}).expect(503)
        operator.put(path, login | {"password": USER["password"]}).expect(204)
        client.post("/application/game/tags", {"tag": "v1"}).expect(204)
        tag = f"/tag/{REGION}/game/v1"
        eventually(lambda: bool(client.get(tag).expect(200).json()["exists"]), "it is pulled")
        made = client.post("/session", {"location": REGION, "image": "game"}).expect(201).json()
        play_round(made)
        client.delete_session(made["id"]).expect(204)
        agent.process.stop()  # its files do not change any more
        kept = [path for path in agent.folder.rglob("*") if path.is_file()]
        assert kept
        for found in kept:
            assert USER["password"].encode() not in found.read_bytes(), found
