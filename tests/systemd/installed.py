"""Both programs on a booted system, installed by make and systemctl as by an operator."""

import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.demo_game.player import saved
from tests.docker.player import SteadyPlayer
from tests.docker.stack import PATIENCE, Served, eventually, udp_port_of
from tests.support.api_client import ApiClient
from tests.support.deployment import PATIENT, REGION
from tests.support.harness import ROOT, Registry, source_files, to_toml
from tests.support.pushed_image import push_game
from tests.systemd.booted import Booted
from tests.systemd.system import System
from tests.systemd.wheels import fetched_wheels

AGENT = "tiltyard-agent"
CONTROL_PLANE = "tiltyard-controlplane"
UNITS = (AGENT, CONTROL_PLANE)
SOURCES = "/root/tiltyard"
TOKENS = "/root/tokens.json"
HOST = "host-1"
WHEELS = "/root/wheels"
_API_PORT = 8080
_MAKE_TIMEOUT = 300.0


@dataclass
class Installed(Served):
    """A system on which both programs run and the demo game can be started."""

    system: System
    registry: Registry
    tokens: Mapping[str, Any]

    @property
    def api(self) -> str:
        """The address of the API."""
        return f"http://{self.system.network.address}:{_API_PORT}"

    @property
    def client(self) -> ApiClient:
        return ApiClient(self.api, self.tokens["accounts"]["studio"])

    @property
    def patience(self) -> float:
        return PATIENCE * self.system.slowness

    def operate(self, *arguments: str) -> Any:
        """Run an operator command and return its JSON output."""
        done = self.system.run(CONTROL_PLANE, *arguments, "--token-file", TOKENS, "--json")
        return json.loads(done)

    def play(self, session_id: str) -> dict[str, Any]:
        """Start a session and wait until its game has opened its ports."""
        answer = self.try_to_start({"Prefer": "wait=ready"}, id=session_id)
        return dict(answer.expect(201).json())

    def pid(self, unit: str) -> int:
        """Return the main process id of a unit."""
        return int(self.system.unit(unit, "MainPID")["MainPID"])

    def games(self) -> list[str]:
        """Return process id and start time of each game."""
        listed = self.system.attempt("ps", "-C", "game", "-o", "pid=,lstart=").stdout
        return [line.strip() for line in listed.splitlines()]

    def until_ready(self, name: str = HOST) -> None:
        """Wait until a host is ready."""

        def is_ready() -> bool:
            return bool(self.operate("agent", "show", name)["state"] == "ready")

        eventually(is_ready, f"{name} is ready", patience=self.patience)

    @contextmanager
    def undisturbed(self, session_id: str) -> Iterator[SteadyPlayer]:
        """Play a session during the `with` body, and check that it was not interrupted.

        It is stopped at the end; its log and its save must have no gap.
        """
        made = self.play(session_id)
        [game] = self.games()
        with SteadyPlayer(made["host"], udp_port_of(made)) as player:
            player.wait_for_more_answers(session_id)
            yield player
            player.wait_for_more_answers(session_id)
            player.stop()
        self.until_ready()
        assert self.games() == [game]
        assert self.status(session_id) == "running"
        assert player.answered_by == {session_id}
        self.end(session_id)
        assert self.games() == []
        archive = self.client.get("/artifacts", session=session_id, path="/data").expect(200).body
        save = saved(archive)
        assert save["session"] == session_id
        assert save["datagrams"] == player.sent - len(player.lost)
        log = self.client.get("/logs", id=session_id).expect(200).body.decode().splitlines()
        assert [int(line.split()[0]) for line in log] == list(range(1, save["lines"] + 1))


def make(system: System, *arguments: str) -> str:
    """Run make in the sources and return its output."""
    done = system.attempt("make", f"--directory={SOURCES}", *arguments, timeout=_MAKE_TIMEOUT)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


def upgraded_sources(system: System) -> str:
    """Raise the version of the sources inside, and return it."""
    path = f"{SOURCES}/pyproject.toml"
    text = system.run("cat", path)
    found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    version = f"{found[1]}.1"
    system.write(path, text.replace(found[0], f'version = "{version}"'))
    return version


@contextmanager
def installed() -> Iterator[Installed]:
    """Boot a system, install and start both programs, enrol the host, create an application."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS}
    with Booted(offline) as system, Registry(system.network.host_address) as registry:
        registry_port = int(registry.address.rpartition(":")[2])
        system.network.lead_to_host(registry_port)
        unpack_sources(system)
        make(system, "install-controlplane")
        make(system, "install-agent")
        tokens = _serve(system, f"127.0.0.1:{registry_port}")
        host = Installed(system, registry, tokens)
        host.until_ready()
        push_game(registry.address)
        host.make_game()
        yield host


def unpack_sources(system: System) -> None:
    """Put the sources and the packages for an installation into a system."""
    version = system.run("python3", "-c", "import sys; print(*sys.version_info[:2], sep='.')")
    wheels = fetched_wheels(version.strip())
    system.unpack(WHEELS, _archive(wheels, [path.name for path in wheels.iterdir()]))
    system.unpack(SOURCES, _archive(ROOT, source_files()))


def _serve(system: System, registry: str) -> dict[str, Any]:
    """Follow the first steps of the installation's output; return the tokens."""
    plane = {
        "api_listen": f"0.0.0.0:{_API_PORT}",
        "behind_proxy": [system.network.host_address],
        "regions": [REGION],
        "registries": [{"name": "local", "address": registry}],
        "start_timeout": PATIENT["start_timeout"],
    }
    system.write("/etc/tiltyard/controlplane.toml", to_toml(plane))
    host = {"rpc_listen": "0.0.0.0:7444", "cpu": 16, "ram": 8192, "prepared": 0}
    system.write("/etc/tiltyard/agent.toml", to_toml(host))
    system.run("cp", "/opt/tiltyard/agent/systemd/daemon.json", "/etc/docker/daemon.json")
    system.run("systemctl", "restart", "docker")

    settings = ("--config", "/etc/tiltyard/controlplane.toml")
    shown = system.run(CONTROL_PLANE, "init", *settings, "--json", "--account", "studio")
    system.run("install", "--mode=600", "/dev/null", TOKENS)
    system.write(TOKENS, shown)
    system.run("systemctl", "start", CONTROL_PLANE, AGENT)

    token = system.run(CONTROL_PLANE, "agent", "token", "--region", REGION, "--token-file", TOKENS)
    system.run(
        AGENT,
        "enrol",
        "https://127.0.0.1:7443",
        "--token-file",
        "/dev/stdin",
        "--name",
        HOST,
        given=token.encode(),
    )
    return dict(json.loads(shown))


def _archive(folder: Path, names: list[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in names:
            tar.add(folder / name, name)
    return buffer.getvalue()
