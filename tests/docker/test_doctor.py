"""Doctor and agent start on the machine's engine and on one with bad settings."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from agent.doctor import gather
from tests.agent.test_doctor import run
from tests.support.private_engine import PrivateEngine
from tiltyard.runtime.settings import EXIT_CONFIG

BAD_SETTINGS = {
    "live-restore": False,
    "icc": True,
    "userland-proxy": False,
    "tls": False,  # if explicit, dockerd does not wait for 15 s
    "mtu": 9000,
}


def findings(folder: Path, socket: Path) -> dict[str, Any]:
    """Level and text of each check."""
    answer = json.loads(run(folder, "doctor", "--json", docker_socket=str(socket)).stdout)
    return {each["check"]: (each["level"], each["found"]) for each in answer["findings"]}


@pytest.fixture
def exposed() -> Iterator[PrivateEngine]:
    with PrivateEngine(BAD_SETTINGS, hosts=["tcp://127.0.0.1:2375"]) as engine:
        yield engine


def test_checks_the_machines_engine_without_changing_it(
    docker_engine: Path, tmp_path: Path
) -> None:
    with closing(docker.DockerClient(base_url=f"unix://{docker_engine}", timeout=20)) as client:
        version = client.version()["Version"]
        before = {network.id for network in client.networks.list()}
        found = findings(tmp_path, docker_engine)
        assert {network.id for network in client.networks.list()} == before
    assert found["docker"][0] == "OK"
    assert found["docker"][1].startswith(f"{version}, API 1.")
    assert found["docker-tcp"][0] == "OK"
    assert found["seccomp"][0] == "OK"
    assert found["docker-disk"][1].startswith("/")
    assert found["container-files"][0] in {"OK", "WARN"}
    assert found["capacities"][0] in {"OK", "WARN"}
    assert found["mtu"][1].startswith("1500 bytes on the engine's bridge")
    assert "dockerd" not in found  # its process was seen
    assert list(tmp_path.iterdir()) == [tmp_path / "agent.toml"]


def test_finds_bad_engine_settings_and_does_not_start(
    exposed: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = findings(tmp_path, exposed.socket)
    assert found["docker-tcp"] == ("FAIL", "it serves anyone on http://127.0.0.1:2375")
    assert found["live-restore"] == ("FAIL", "off")
    assert found["mtu"][0] == "WARN"
    assert found["mtu"][1].startswith("9000 bytes on the engine's bridge, ")
    assert found["icc"] == ("WARN", "on")
    assert found["userland-proxy"] == ("OK", "off")
    assert found["docker-disk"][1].startswith(f"{exposed.data_root}: ")
    refused = run(tmp_path, "serve", docker_socket=str(exposed.socket))
    assert refused.exit_code == EXIT_CONFIG
    assert "Docker Engine serves anyone on http://127.0.0.1:2375; anyone" in refused.stderr

    with monkeypatch.context() as patch, exposed.hanging():
        patch.setattr(gather, "ANSWER_SECONDS", 0.5)
        assert findings(tmp_path, exposed.socket)["docker"] == ("FAIL", "no answer within 0.5 s")

    exposed.kill()
    level, text = findings(tmp_path, exposed.socket)["docker"]
    assert level == "FAIL"
    assert text.startswith("cannot reach the container engine: ")
