"""Docker's API and command, by which the benchmarks start containers like those of sessions."""

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from agent.docker.container_config import INIT
from tests.demo_game import UDP_PORT
from tests.demo_game.player import udp_round_trip
from tests.support.harness import free_port

CREATE = "/containers/create"
_TIMEOUT = 60
_RUN_TIMEOUT = 300
_LABEL = "io.tiltyard.bench"
_COPIED = ("Image", "User", "ExposedPorts", "Healthcheck", "Labels")


class EngineConnection(http.client.HTTPConnection):
    """HTTP to the engine's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=_TIMEOUT)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT)
        self.sock.connect(self._path)


def call(engine: EngineConnection, method: str, path: str, body: object = None) -> Any:
    """Send a request and return the JSON of its answer; RuntimeError after an error status."""
    content = None if body is None else json.dumps(body)
    engine.request(method, path, content, {"Content-Type": "application/json"})
    answer = engine.getresponse()
    text = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
    return json.loads(text) if text else None


def remove(engine: EngineConnection, container: str) -> None:
    """Remove a container with its volumes, running or not."""
    call(engine, "DELETE", f"/containers/{container}?force=true&v=true")


def options_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the create body of an inspected container, with its labels renamed.

    The engine's init executes the program of the image, without waiting.
    """
    config = {name: found["Config"][name] for name in _COPIED if found["Config"].get(name)}
    config["Labels"] = {f"{_LABEL}.{n}": text for n, text in enumerate(config["Labels"].values())}
    host = found["HostConfig"]
    mounts = [mount for mount in host["Mounts"] if mount["Target"] != INIT]
    return {**config, "HostConfig": {**host, "Init": True, "Mounts": mounts}}


def create_and_start(engine: EngineConnection, body: Mapping[str, Any]) -> tuple[float, float]:
    """Return the milliseconds of the two calls, and 0; the container is removed."""
    sent = with_free_port(body)
    begin = time.perf_counter()
    container = call(engine, "POST", CREATE, sent)["Id"]
    try:
        call(engine, "POST", f"/containers/{container}/start")
        return (time.perf_counter() - begin) * 1000, 0.0
    finally:
        remove(engine, container)


def docker_run(path: Path, image: str) -> tuple[float, float]:
    """Start the game by `docker run`; the container is removed.

    Return the milliseconds until the command has returned, and until the game has answered.
    """
    port = free_port()
    publish = f"127.0.0.1:{port}:{UDP_PORT}/udp"
    options = ["--detach", "--init", "--memory", "64m", "--cpus", "1", "--publish", publish]
    begin = time.perf_counter()
    command = ["docker", "--host", f"unix://{path}", "run", *options, image]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=_RUN_TIMEOUT
    )
    started = time.perf_counter()
    udp_round_trip("127.0.0.1", port)
    answered = time.perf_counter()
    with closing(EngineConnection(path)) as engine:
        remove(engine, done.stdout.strip())
    return (started - begin) * 1000, (answered - begin) * 1000


def with_free_port(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a create body with host ports that are free."""
    host = body["HostConfig"]
    bindings = {
        port: [{**one, "HostPort": str(free_port())} for one in published]
        for port, published in (host["PortBindings"] or {}).items()
    }
    return {**body, "HostConfig": {**host, "PortBindings": bindings}}
