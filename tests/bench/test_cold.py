"""The benchmark compares like with like: `docker run` is given what the create body says."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.bench.cold import options_of, run_command
from tests.support.harness import Image, free_port

pytestmark = [pytest.mark.docker, pytest.mark.registry]


@pytest.fixture
def engine(docker_engine: Path) -> Iterator[docker.APIClient]:
    client = docker.APIClient(base_url=f"unix://{docker_engine}", version="auto", timeout=30)
    yield client
    client.close()


@pytest.fixture
def created(engine: docker.APIClient, demo_image: Image, tmp_path: Path) -> Iterator[Any]:
    """A container made as the agent makes its own, inspected."""
    engine.pull(demo_image.reference)
    body = {
        "Image": demo_image.reference,
        "Cmd": ["--lines-per-second", "5"],
        "Env": ["A=1", "B=two words"],
        "Labels": {"io.tiltyard.record": '{"a": ["b", "c"]}'},
        "Healthcheck": {"Test": ["NONE"]},
        "ExposedPorts": {"7777/udp": {}},
        "HostConfig": {
            "PortBindings": {"7777/udp": [{"HostIp": "127.0.0.1", "HostPort": str(free_port())}]},
            "Init": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": 512,
            "Memory": 64 * 2**20,
            "MemorySwap": 64 * 2**20,
            "NanoCpus": 500_000_000,
            "CpuShares": 102,
            "LogConfig": {
                "Type": "local",
                "Config": {"max-size": "67108864", "max-file": "2", "compress": "false"},
            },
            "Ulimits": [{"Name": "nofile", "Soft": 4096, "Hard": 4096}],
            "RestartPolicy": {"Name": "no"},
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": str(tmp_path),
                    "Target": "/run/tiltyard",
                    "ReadOnly": True,
                }
            ],
        },
    }
    made = engine.create_container_from_config(body)["Id"]  # type: ignore[no-untyped-call]
    yield engine.inspect_container(made)
    engine.remove_container(made, force=True)


def test_docker_run_is_given_the_same_options(engine: docker.APIClient, created: Any) -> None:
    body = options_of(created)
    done = subprocess.run(run_command(body), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    try:
        found = engine.inspect_container(done.stdout.strip())
    finally:
        engine.remove_container(done.stdout.strip(), force=True)
    asked = normal(options_of(found)["HostConfig"])
    assert asked == normal(body["HostConfig"])
    for name in ("Image", "Cmd"):
        assert options_of(found)[name] == body[name]
    # The engine appends what the image sets, or puts it first.
    assert sorted(options_of(found)["Env"]) == sorted(body["Env"])
    assert sorted(options_of(found)["Labels"].values()) == sorted(body["Labels"].values())


def test_its_containers_do_not_carry_the_labels_of_the_agent(created: Any) -> None:
    names = options_of(created)["Labels"]
    assert names
    assert all(name.startswith("io.tiltyard.bench.") for name in names)


def normal(host: dict[str, Any]) -> dict[str, Any]:
    """The options without those whose ways of saying nothing differ."""
    return {name: value for name, value in host.items() if value and name != "ConsoleSize"}
