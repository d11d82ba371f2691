"""The commands of the README and docs/examples, on a real engine."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo_game import UDP_PORT, Image
from tests.docker.operated_host import run
from tests.docker.stack import Stack, a_stack, environment_of, eventually
from tests.support.deployment import REGION, REGISTRY_NAME, application
from tests.support.doc_examples import ROOT, examples

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "docs" / "examples"
README = (ROOT / "README.md").read_text("utf-8")
PROGRAMS = (EXAMPLES / "README.md").read_text("utf-8")
PORTING = (ROOT / "docs" / "porting.md").read_text("utf-8")
GAME = "match-game"
_TIMEOUT = 50.0
_END_OF_OUTPUT = "\x1e"


class Shell:
    """A shell in a clone of the repository, next to a running deployment."""

    def __init__(self, stack: Stack, docker_engine: Path, folder: Path) -> None:
        client = stack.client
        registry = stack.image.address
        self.folder = folder
        no_cache = shutil.ignore_patterns("__pycache__")  # to which other tests write
        shutil.copytree(EXAMPLES, folder / "docs" / "examples", ignore=no_cache)
        (folder / ".tiltyard").mkdir()
        (folder / ".tiltyard" / "dev.json").write_text(
            json.dumps(
                {
                    "base_url": client.base_url,
                    "token": client.token,
                    "registry": {"name": REGISTRY_NAME, "address": registry},
                }
            )
        )
        self.environment = {
            **os.environ,
            "DOCKER_HOST": f"unix://{docker_engine}",
            "TILTYARD_URL": client.base_url,
            "TILTYARD_TOKEN": client.token,
            "TILTYARD_REGISTRY": registry,
        }

    def type(self, commands: list[str]) -> list[str]:
        """Type commands into one bash; return their outputs."""
        script = "".join(f"{command}\nprintf '{_END_OF_OUTPUT}'\n" for command in commands)
        outputs = self.run(["bash", "-euo", "pipefail", "-c", script]).split(_END_OF_OUTPUT)
        assert outputs.pop() == ""
        return outputs

    def run(self, command: list[str], typed: str = "") -> str:
        """Run a program that must succeed; return its output."""
        return run(command, typed=typed, folder=self.folder, environment=self.environment)

    def example(self, name: str, *arguments: str) -> str:
        """Run one of docs/examples as its first line shows."""
        return self.run([f"docs/examples/{name}", *arguments])


@pytest.fixture(scope="module")
def stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    [block] = re.findall(r"```toml\n(.*?)```", PORTING, re.DOTALL)
    with a_stack(docker_engine, demo_image, **tomllib.loads(block)) as made:
        yield made


@pytest.fixture(scope="module")
def shell(stack: Stack, docker_engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(stack, docker_engine, tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def released(stack: Stack, shell: Shell) -> str:
    """Release a game, so that it can be started; return the output."""
    ports = [{"requested": UDP_PORT, "protocol": "udp", "tls": False}]
    stack.client.post("/application", application(GAME, repository=GAME, ports=ports)).expect(201)
    game = "docs/examples/my-game/game"
    shell.run(["gcc", "-static", "-O2", "-o", game, f"{game}.c"])
    return shell.example("release.sh", "docs/examples/my-game", GAME, "v1")


def say(text: str, host: str, port: int) -> str:
    """Send a datagram to the game and return its answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as player:
        player.settimeout(_TIMEOUT)
        player.connect((host, port))
        player.send(text.encode())
        return player.recv(1024).decode()


def test_a_newcomer_hosts_a_game_by_the_readme(stack: Stack, shell: Shell) -> None:
    typed = [each for page in (README, PROGRAMS) for each in examples(page) if each.prompt == "$"]
    outputs = shell.type([example.command for example in typed])
    for example, output in zip(typed, outputs, strict=True):
        example.check(output)
    assert stack.status("match-1") == "exited"


def test_a_build_server_releases_a_tag(released: str, stack: Stack) -> None:
    assert released == f"{GAME}:v1 can be started in {REGION}\n"
    assert stack.client.get(f"/tag/{REGION}/{GAME}/v1").expect(200).json() == {"exists": True}


@pytest.mark.usefixtures("released")
def test_a_matchmaker_plays_a_match(stack: Stack, shell: Shell) -> None:
    matchmaker = subprocess.Popen(
        [sys.executable, "docs/examples/matchmaker.py", GAME, REGION, "ann", "bo"],
        cwd=shell.folder,
        env=shell.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert matchmaker.stdout is not None
        line = matchmaker.stdout.readline()
        found = re.fullmatch(
            r"(match-\S+) with 2 players is on (\S+), ports (\d+) for 7777/udp\n", line
        )
        assert found is not None, line
        match, host, port = found.groups()
        assert say("well played", host, int(port)) == f"{match} received well played"
        described = stack.client.get(f"/session/{match}").expect(200).json()
        assert described["players"] == {"joined": ["ann", "bo"], "joinedCount": 2}
        printed, _ = matchmaker.communicate("\n", timeout=_TIMEOUT)
    finally:
        matchmaker.kill()
        matchmaker.wait()
    assert matchmaker.returncode == 0
    assert printed.endswith(f"{match} listens on 7777/udp\nSIGTERM received\n")
    assert stack.status(match) == "exited"


@pytest.mark.usefixtures("released")
def test_a_warm_pool_is_kept_and_removed(stack: Stack, shell: Shell) -> None:
    printed = shell.example("warm_pool.sh", GAME, REGION, "2")
    assert printed == f"2 standbys of {GAME} are ready in {REGION}\n"
    [pool] = stack.client.get("/warm-pool").expect(200).json()["warmPools"]
    assert pool["image"] == GAME
    assert pool["size"] == 2
    assert pool["ready"] == 2
    assert shell.example("warm_pool.sh", GAME, REGION, "0") == ""
    assert stack.client.get("/warm-pool").expect(200).json() == {"warmPools": []}
    eventually(
        lambda: all(each.status != "running" for each in stack.containers().values()),
        "no standby is left",
    )


def is_executed(container: Any) -> bool:
    """Whether the game has the variable of the test, which its init has not."""
    with contextlib.suppress(FileNotFoundError):
        return "WHERE" in environment_of(container)
    return False


@pytest.mark.usefixtures("released")
def test_a_game_finds_its_variables_under_every_prefix(stack: Stack) -> None:
    table = PORTING.split("| variable, for each prefix | value |\n")[1].split("\n\n")[0]
    shown = set(re.findall(r"`OTHER_(\w+)`", table)) - {"PORT_TCP_7778"}
    made = stack.start(image=GAME, env={"WHERE": "$OTHER_HOST:${TILTYARD_PORT_UDP_7777}"})
    running = [
        container for container in stack.containers().values() if container.status == "running"
    ]
    [container] = running
    eventually(lambda: is_executed(container), "its process is the game")
    variables = environment_of(container)
    ours = {name for name in variables if name.startswith("TILTYARD_")}
    assert ours == {f"TILTYARD_{name}" for name in shown}
    for name in shown:
        assert variables[f"OTHER_{name}"] == variables[f"TILTYARD_{name}"]
    [port] = made["ports"]
    assert variables["OTHER_SESSION_ID"] == made["id"]
    assert variables["WHERE"] == f"{made['host']}:{port['host']}"
    stack.end(made["id"])
