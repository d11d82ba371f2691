"""A cold start: POST /session to its 201, against what the engine alone takes for the same.

The options are not repeated here: the container of a first session is inspected, and the same body
is sent to the Docker API, the same options are given to `docker run`. The three are interleaved in
one run, in an order that rotates, and each removes its container before the next begins.
"""

from __future__ import annotations

import http.client
import json
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.api_client import ApiClient
from tests.bench.report import Result
from tests.demo_game import UDP_PORT
from tests.demo_game.player import udp_round_trip
from tests.deployment import REGION, Deployment, application, enable_tag
from tests.harness import free_port

APPLICATION = "bench-cold"
_WARM_UP = 2
_TIMEOUT = 60
_LABEL = "io.tiltyard.bench"
_COPIED = ("Image", "Cmd", "Env", "User", "ExposedPorts", "Healthcheck", "Labels")


class _Unix(http.client.HTTPConnection):
    """HTTP to the engine's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=_TIMEOUT)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT)
        self.sock.connect(self._path)


def _call(engine: _Unix, method: str, path: str, body: object = None) -> Any:
    content = None if body is None else json.dumps(body)
    engine.request(method, path, content, {"Content-Type": "application/json"})
    answer = engine.getresponse()
    text = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
    return json.loads(text) if text else None


@dataclass
class _Times:
    """Milliseconds of every round."""

    session: list[float] = field(default_factory=list)
    api: list[float] = field(default_factory=list)
    run: list[float] = field(default_factory=list)
    first_udp: list[float] = field(default_factory=list)


def measure(deployment: Deployment, rounds: int) -> list[Result]:
    """Run all rounds and return the medians."""
    client = deployment.client
    ports = [{"requested": UDP_PORT, "protocol": "udp", "tls": False}]
    client.post("/application", application(APPLICATION, ports=ports)).expect(201)
    enable_tag(client, APPLICATION, deployment.image.tag)
    engine = _Unix(deployment.engine.socket)
    try:
        body = _options_of_a_session(client, engine)
        times = _Times()
        ways: list[Callable[[_Times], None]] = [
            lambda kept: _post_session(client, kept),
            lambda kept: _create_and_start(engine, body, kept),
            lambda kept: _docker_run(engine, body, kept),
        ]
        for number in range(_WARM_UP + rounds):
            kept = times if number >= _WARM_UP else _Times()
            for place in range(len(ways)):
                ways[(number + place) % len(ways)](kept)
    finally:
        engine.close()
    session, api = statistics.median(times.session), statistics.median(times.api)
    run = statistics.median(times.run)
    return [
        Result("cold.bridge.session_ms", session, "ms"),
        Result("cold.bridge.engine_ms", api, "ms"),
        Result("cold.bridge.docker_run_ms", run, "ms"),
        Result("cold.bridge.extra_ms", session - api, "ms"),
        Result("cold.bridge.ratio", session / api, "x"),
        Result("cold.bridge.ratio_to_docker_run", session / run, "x"),
        Result("cold.first_udp.ms", statistics.median(times.first_udp), "ms"),
        Result("cold.rounds", len(times.session), "rounds"),
    ]


def _options_of_a_session(client: ApiClient, engine: _Unix) -> dict[str, Any]:
    """Return the create body of a session's container, read back from the engine."""
    with _session(client) as (_, port):
        (container,) = (
            one["Id"]
            for one in _call(engine, "GET", "/containers/json")
            if any(published.get("PublicPort") == port for published in one["Ports"])
        )
        found = _call(engine, "GET", f"/containers/{container}/json")
    return options_of(found)


def options_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the create body of an inspected container, with labels that are not the agent's."""
    config = {name: found["Config"][name] for name in _COPIED if found["Config"].get(name)}
    config["Labels"] = {f"{_LABEL}.{n}": text for n, text in enumerate(config["Labels"].values())}
    return {**config, "HostConfig": found["HostConfig"]}


@contextmanager
def _session(client: ApiClient) -> Iterator[tuple[str, int]]:
    made = client.post("/session", {"location": REGION, "image": APPLICATION}).expect(201).json()
    try:
        yield made["host"], made["ports"][0]["host"]
    finally:
        client.delete_session(made["id"]).expect(204)


def _post_session(client: ApiClient, times: _Times) -> None:
    begin = time.perf_counter()
    with _session(client) as (host, port):
        times.session.append((time.perf_counter() - begin) * 1000)
        udp_round_trip(host, port)
        times.first_udp.append((time.perf_counter() - begin) * 1000)


def _create_and_start(engine: _Unix, body: Mapping[str, Any], times: _Times) -> None:
    sent = _with_free_port(body)
    begin = time.perf_counter()
    container = _call(engine, "POST", "/containers/create", sent)["Id"]
    try:
        _call(engine, "POST", f"/containers/{container}/start")
        times.api.append((time.perf_counter() - begin) * 1000)
    finally:
        _call(engine, "DELETE", f"/containers/{container}?force=true&v=true")


def _docker_run(engine: _Unix, body: Mapping[str, Any], times: _Times) -> None:
    command = run_command(_with_free_port(body))
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    elapsed = (time.perf_counter() - begin) * 1000
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    times.run.append(elapsed)
    _call(engine, "DELETE", f"/containers/{done.stdout.strip()}?force=true&v=true")


def _with_free_port(body: Mapping[str, Any]) -> dict[str, Any]:
    host = body["HostConfig"]
    bindings = {
        port: [{**one, "HostPort": str(free_port())} for one in published]
        for port, published in host["PortBindings"].items()
    }
    return {**body, "HostConfig": {**host, "PortBindings": bindings}}


def run_command(body: Mapping[str, Any]) -> list[str]:
    """Return the `docker run` that asks for what the create body asks for."""
    flags = [*_flags(body), *_host_flags(body["HostConfig"])]
    return ["docker", "run", "--detach", *flags, body["Image"], *body.get("Cmd", [])]


def _flags(body: Mapping[str, Any]) -> Iterator[str]:
    host = body["HostConfig"]
    for variable in body.get("Env", []):
        yield f"--env={variable}"
    for name, text in body["Labels"].items():
        yield f"--label={name}={text}"
    for port, published in host["PortBindings"].items():
        for one in published:
            yield f"--publish={one['HostIp']}:{one['HostPort']}:{port}"
    for mount in host.get("Mounts") or []:
        read_only = ",readonly" if mount.get("ReadOnly") else ""
        yield f"--mount=type=bind,src={mount['Source']},dst={mount['Target']}{read_only}"


def _host_flags(host: Mapping[str, Any]) -> Iterator[str]:
    if host.get("Init"):
        yield "--init"
    yield f"--network={host['NetworkMode']}"
    for option in host.get("SecurityOpt") or []:
        yield f"--security-opt={option}"
    for capability in host.get("CapDrop") or []:
        yield f"--cap-drop={capability}"
    for limit in host.get("Ulimits") or []:
        yield f"--ulimit={limit['Name']}={limit['Soft']}:{limit['Hard']}"
    yield f"--pids-limit={host['PidsLimit']}"
    yield f"--memory={host['Memory']}"
    yield f"--memory-swap={host['MemorySwap']}"
    yield f"--cpus={host['NanoCpus'] / 1e9}"
    yield f"--cpu-shares={host['CpuShares']}"
    yield f"--log-driver={host['LogConfig']['Type']}"
    for name, text in host["LogConfig"]["Config"].items():
        yield f"--log-opt={name}={text}"
