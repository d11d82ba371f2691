"""The agent does not start on engines that serve clients without a certificate.

`engine_info/` has recorded responses to `GET /info` of real engines: without TCP, with TCP, and
with TLS that does not verify clients (`dockerd --tlsverify=false`).
"""

import asyncio
import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from agent.docker.answers import open_listeners
from agent.docker.dockerd import open_hosts, settings_of
from agent.doctor.exposure import exposure
from tests.agent.test_doctor import run
from tests.support.agent.scripted_engine import ScriptedEngine, says
from tests.support.harness import running
from tiltyard.runtime.settings import EXIT_CONFIG

RECORDED = Path(__file__).with_name("engine_info")
VERSIONS = ["20.10.24", "26.1.5", "28.5.2"]


def recorded(version: str, kind: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((RECORDED / f"{version}-{kind}.json").read_text())
    assert answer["ServerVersion"].startswith(version)
    return answer


@pytest.mark.parametrize("version", VERSIONS)
def test_engine_reports_unauthenticated_listeners(version: str) -> None:
    for address in ("http://127.0.0.1:2375", "https://127.0.0.1:2376"):
        assert open_listeners(recorded(version, address.partition(":")[0]), {}) == (address,)
    assert open_listeners(recorded(version, "closed"), {}) == ()


async def test_agent_does_not_start_with_unauthenticated_engine(
    tmp_path: Path, engine_socket: ScriptedEngine
) -> None:
    engine_socket.answer("GET /info", says(recorded(VERSIONS[-1], "http")))
    refused = await asyncio.to_thread(run, tmp_path, "serve")
    assert refused.exit_code == EXIT_CONFIG
    assert "Docker Engine serves anyone on http://127.0.0.1:2375; anyone" in refused.stderr
    assert not (tmp_path / "state").exists()
    engine_socket.answer("GET /info", says(recorded(VERSIONS[-1], "closed")))
    assert await asyncio.to_thread(exposure, tmp_path / "engine.sock") == ""


_DAEMON = """
import pathlib, signal, socket, sys
pathlib.Path("/proc/self/comm").write_text("dockerd")
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("serves", flush=True)
signal.pause()
"""


def hung_daemon(socket: Path, *options: str) -> AbstractContextManager[None]:
    """Run a process that looks like dockerd with these options and never answers."""
    return running([sys.executable, "-c", _DAEMON, str(socket), *options])


@pytest.mark.parametrize("by_file", [False, True])
def test_checks_daemon_settings_if_engine_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_file: bool
) -> None:
    monkeypatch.setattr("agent.doctor.exposure.ENGINE_SECONDS", 0.1)
    file = tmp_path / "daemon.json"
    socket = tmp_path / "engine.sock"
    hosts = ["fd://", "tcp://0.0.0.0:2375"]
    file.write_text(json.dumps({"hosts": hosts} if by_file else {}))
    flags = [] if by_file else [f"-H={host}" for host in hosts]
    with hung_daemon(socket, "--config-file", str(file), *flags):
        assert "serves anyone on http://0.0.0.0:2375; " in exposure(socket)
    socket.unlink()
    file.write_text("what cannot be read is unknown")
    with hung_daemon(socket, "--config-file", str(file)):
        assert exposure(socket) == ""


def test_reads_command_line_of_daemon() -> None:
    line = "--icc=false --config-file /etc/d.json --userland-proxy -H fd:// --debug --tls"
    assert settings_of(line.split()) == {
        "icc": "false",
        "config-file": "/etc/d.json",
        "userland-proxy": "true",
        "hosts": ["fd://"],
        "debug": "true",
        "tls": "true",
    }


@pytest.mark.parametrize(
    ("line", "addresses"),
    [
        ("", []),
        ("-H fd:// --host=unix:///run/docker.sock", []),
        (
            "-H tcp://10.0.0.1:2375 --host :2375 -DHtcp://[::1]:1",
            ["10.0.0.1:2375", ":2375", "[::1]:1"],
        ),
        ("-H tcp://0.0.0.0:2376 --tlsverify", []),
        ("-H tcp://0.0.0.0:2376 --tls", []),  # verifies clients by default
        ("-H tcp://0.0.0.0:2375 --tls=false", ["0.0.0.0:2375"]),
    ],
)
def test_finds_tcp_listeners_without_client_verification(line: str, addresses: list[str]) -> None:
    assert list(open_hosts(settings_of(line.split()))) == [f"http://{each}" for each in addresses]


def test_tls_without_client_verification_is_open() -> None:
    settings = {"hosts": ["tcp://0.0.0.0:2376"], "tls": True, "tlsverify": False}
    assert open_hosts(settings) == ("https://0.0.0.0:2376",)
    assert open_hosts({**settings, "tlsverify": True}) == ()
