"""F43 through the whole product: failing pulls as callers and operators see them."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import docker
import pytest

from controlplane.fleet.host.images import LONGEST_WAIT
from tests.docker.stack import PATIENCE, Served, eventually, play_round
from tests.faults.callers import assert_callers_served
from tests.faults.real_host import RealHost
from tests.support.chaos_registry import ChaosRegistry
from tests.support.deployment import PATIENT, REGION, application
from tests.support.harness import AgentProcess, AgentSpec, ControlPlaneProcess, Registry
from tests.support.private_engine import PrivateEngine, small_disk
from tests.support.pushed_image import PushedImage
from tests.support.registry_faults import corrupts, hangs_half_way, waits


@dataclass
class Product(Served):
    """One host, with a disturbable engine and registry, and its control plane."""

    engine: PrivateEngine
    chaos: ChaosRegistry
    agent: AgentProcess
    control_plane: ControlPlaneProcess

    def push(self, name: str, tag: str, layer: bytes = b"") -> PushedImage:
        """Push an image with a unique layer."""
        more = [layer or os.urandom(100_000)]
        return self.chaos.push(name, tag, more=more)

    def make_application(self, name: str) -> None:
        self.client.post("/application", application(name, repository=name)).expect(201)

    def enable(self, image: PushedImage) -> None:
        path = f"/application/{image.repository}/tags"
        self.client.post(path, {"tag": image.tag}).expect(204)

    def is_there(self, image: PushedImage) -> bool:
        path = f"/tag/{REGION}/{image.repository}/{image.tag}"
        return bool(self.client.get(path).expect(200).json()["exists"])

    def until_there(self, image: PushedImage) -> None:
        """Wait for a pull, whose next try may be LONGEST_WAIT away after many failures."""
        what = f"{image.tag} is pulled; {self.pulls()}"
        eventually(lambda: self.is_there(image), what, patience=LONGEST_WAIT + PATIENCE)

    def pulls(self) -> dict[str, dict[str, Any]]:
        """The host's pulls in the operator API, by image."""
        shown = self.control_plane.operator.get("/operator/agent/local").expect(200).json()
        return {pull["image"]: pull for pull in shown["pulls"]}

    def until_failed(self, image: PushedImage, cause: str) -> None:
        """Wait until the operator API shows a failed try and its cause."""

        def is_reported() -> bool:
            pull = self.pulls().get(image.reference, {})
            return pull.get("failures", 0) > 0 and cause in (pull["cause"] or "")

        eventually(is_reported, f"{cause!r} is reported")

    def until_told_of_room(self, image: PushedImage) -> None:
        """Wait until the operator API says that there is no room for an image.

        The host says so to a try; later ones wait until it reports room. A try that began before
        the host noticed fails in the engine.
        """

        def is_told() -> bool:
            pull = self.pulls().get(image.reference, {})
            cause = pull.get("cause") or ""
            return pull.get("state") == "no_room" or cause.startswith("disk_full: too little room")

        eventually(is_told, "the API says that there is no room")

    def obstacles(self, image: PushedImage) -> list[str]:
        """The obstacles to a session of an image on the host."""
        asked = {"image": image.repository, "location": REGION, "account": "default"}
        answer = self.control_plane.operator.get("/operator/placement", **asked).expect(200)
        [host] = answer.json()["hosts"]
        return [obstacle["kind"] for obstacle in host["obstacles"]]

    def play(self, image: PushedImage, **body: object) -> str:
        """Start a session, play a round and end it; return the tag that it ran."""
        made = self.start(image=image.repository, **body)
        play_round(made)
        described = self.client.get(f"/session/{made['id']}").expect(200).json()
        self.end(made["id"])
        return str(described["tag"])


@pytest.fixture(scope="module")
def product(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    folder = tmp_path_factory.mktemp("disk")
    with (
        small_disk(folder, 64) as disk,
        PrivateEngine(data_root=disk) as engine,
        ChaosRegistry(registry.address, "127.0.0.1", engine.network.host_address) as chaos,
        AgentProcess(
            engine.socket, bind_address="0.0.0.0", public_address=engine.network.address
        ) as agent,
        ControlPlaneProcess(
            [AgentSpec("local", agent.address)], {"local": chaos.address}, **PATIENT
        ) as control_plane,
    ):
        engine.network.lead_to_host(int(chaos.address.rpartition(":")[2]))
        yield Product(engine, chaos, agent, control_plane)


@pytest.fixture(autouse=True)
def survived(product: Product) -> Iterator[None]:
    with contextlib.closing(docker.DockerClient(f"unix://{product.engine.socket}")) as client:
        host = RealHost(product.agent, client, product.engine.network.inside)
        yield
        host.assert_survived()
        assert_callers_served(product.control_plane, host.sessions())


def test_f43_starts_go_on_with_the_newest_tag_that_is_there(product: Product) -> None:
    old, broken, new = (product.push("game", tag) for tag in ("v1", "v2", "v3"))
    product.make_application("game")
    product.enable(old)
    product.until_there(old)
    product.chaos.disturb(broken.layers[-1], corrupts)
    product.enable(broken)
    cause = "verification failed"
    product.until_failed(broken, cause)
    logs = [part.process.log for part in (product.agent, product.control_plane)]
    eventually(lambda: all(cause in log.read_text() for log in logs), "both have logged it")
    assert not product.is_there(broken)
    assert product.play(old) == "v1"
    product.try_to_start(image="game", version="v2").expect(404)

    product.enable(new)
    product.until_there(new)
    assert product.play(new) == "v3"
    assert list(product.pulls()) == [broken.reference]

    product.chaos.heal()
    product.until_there(broken)
    assert product.play(broken, version="v2") == "v2"
    assert product.pulls() == {}


def test_f43_a_hundred_starts_of_an_image_that_comes_make_one_pull(product: Product) -> None:
    image = product.push("crowd", "v1")
    product.make_application("crowd")
    product.chaos.disturb(image.layers[-1], waits)
    product.enable(image)
    product.chaos.wait_until_asked(image.layers[-1])

    with ThreadPoolExecutor(20) as callers:
        calls = [callers.submit(product.try_to_start, image="crowd") for _ in range(100)]
    assert {call.result().status for call in calls} == {404}
    product.chaos.heal()
    product.until_there(image)
    assert product.play(image) == "v1"
    assert product.chaos.asked(image.layers[-1]) == 1


@pytest.mark.slow
def test_f43_a_full_disk_is_told_and_the_pull_goes_on_when_there_is_room(product: Product) -> None:
    image = product.push("big", "v1", os.urandom(4_000_000))
    product.make_application("big")
    # Room for far less than the image, whose size its manifest declares.
    filler = product.engine.data_root / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(product.engine.data_root).free - 1_000_000))
    product.enable(image)
    product.until_told_of_room(image)
    eventually(lambda: "disk_full" in product.obstacles(image), "the host is known to be full")
    filler.unlink()
    product.until_there(image)
    eventually(lambda: not product.obstacles(image), "the host takes sessions again")
    assert product.play(image) == "v1"


@pytest.mark.slow
def test_f43_a_pull_whose_engine_goes_away_is_tried_again(product: Product) -> None:
    image = product.push("orphan", "v1")
    product.make_application("orphan")
    product.chaos.disturb(image.layers[-1], hangs_half_way)
    product.enable(image)
    product.chaos.wait_until_asked(image.layers[-1])
    product.engine.kill()
    product.until_failed(image, "cannot reach the container engine")
    product.chaos.heal()
    product.engine.start()
    product.until_there(image)
    eventually(lambda: not product.obstacles(image), "the host takes sessions again")
    assert product.play(image) == "v1"
