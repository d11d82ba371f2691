"""The demo game as a container: it must live on nothing but what its image holds."""

import io
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from tests.demo_game.player import tcp_greeting, udp_round_trip
from tests.support.harness import Image, Registry, build_image

pytestmark = [pytest.mark.docker, pytest.mark.registry]


@pytest.fixture
def engine(docker_engine: Path) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=f"unix://{docker_engine}", timeout=30)
    yield client
    client.close()


@contextmanager
def container(
    engine: docker.DockerClient, image: Image, args: Sequence[str] = (), *, init: bool = True
) -> Iterator[Container]:
    engine.images.pull(image.reference)
    made = engine.containers.create(
        image.reference,
        list(args),
        init=init,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        environment={"TILTYARD_SESSION_ID": "one"},
        ports={"7777/udp": ("127.0.0.1", 0), "7778/tcp": ("127.0.0.1", 0)},
    )
    try:
        made.start()
        made.reload()
        yield made
    finally:
        made.remove(force=True, v=True)


def host_port(made: Container, port: str) -> int:
    published = made.ports[port]
    assert published
    return int(published[0]["HostPort"])


@pytest.mark.parametrize("init", [True, False])
def test_plays_logs_and_saves_with_and_without_init(
    engine: docker.DockerClient, demo_image: Image, init: bool
) -> None:
    with container(engine, demo_image, init=init) as game:
        udp_round_trip("127.0.0.1", host_port(game, "7777/udp"))
        assert tcp_greeting("127.0.0.1", host_port(game, "7778/tcp")) == "demo game one"
        game.kill("TERM")  # a game that did not take it would end by a signal
        assert game.wait(timeout=30)["StatusCode"] == 0
        log = game.logs().decode().splitlines()
        assert [int(line.split()[0]) for line in log] == list(range(1, len(log) + 1))
        assert log[-1].endswith("SIGTERM: saving")
        archive = b"".join(game.get_archive("/data/save.json")[0])
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            assert tar.getnames() == ["save.json"]


def test_runs_as_an_unprivileged_user_of_an_image_with_etc(
    engine: docker.DockerClient, demo_image: Image
) -> None:
    with container(engine, demo_image) as game:
        assert {uid for _, uid in game.top(ps_args="-eo pid,uid")["Processes"]} == {"1000"}
        with tarfile.open(fileobj=io.BytesIO(b"".join(game.get_archive("/etc")[0]))) as tar:
            assert "etc/passwd" in tar.getnames()


def test_takes_its_arguments_from_the_command(
    engine: docker.DockerClient, demo_image: Image
) -> None:
    args = ["--exit-after", "0.2", "--exit-code", "7", "--write-file", "/data/x", "1000"]
    with container(engine, demo_image, args) as game:
        assert game.wait(timeout=30)["StatusCode"] == 7
        assert b" wrote /data/x 1000\n" in game.logs()


def test_an_image_may_hold_arguments_or_be_one_that_cannot_run(
    engine: docker.DockerClient, docker_engine: Path, registry: Registry, demo_image: Image
) -> None:
    crash = build_image(docker_engine, registry.address, tag="crash", args=["--crash-after", "0"])
    with container(engine, crash) as game:
        assert game.wait(timeout=30)["StatusCode"] == 134
    broken = build_image(docker_engine, registry.address, tag="broken", entrypoint="/missing")
    with (
        pytest.raises(docker.errors.APIError, match="/missing"),
        container(engine, broken, init=False),
    ):
        pass
    assert len({demo_image.digest, crash.digest, broken.digest}) == 3
