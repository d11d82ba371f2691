"""Containers of an agent on a real engine: their sessions, ports and removal."""

import re
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import docker

from agent.domain.containers.engine import LABEL_AGENT
from agent.domain.sessions.session import Session
from tests.faults import invariants
from tests.support.harness import AgentProcess
from tests.support.private_network import run

_DNAT = re.compile(r"-p (tcp|udp) .*--dport (\d+) -j DNAT")
_PATIENCE = 30.0  # Seconds in which a removal ends


def containers_of(agent: AgentProcess, engine: docker.DockerClient) -> list[Any]:
    """All containers of an agent."""
    found: list[Any] = engine.containers.list(
        all=True, filters={"label": f"{LABEL_AGENT}={agent.agent_id}"}, ignore_removed=True
    )
    return found


def owner_of(container: Any, sessions: Sequence[Session]) -> str:
    """Return the internal id of a container's session; empty for a prepared container."""
    return invariants.session_of(container.id, container.name, container.labels, sessions)


def published(container: Any) -> frozenset[invariants.Address]:
    """Return the host ports that the engine publishes for a container."""
    return frozenset(
        (port.partition("/")[2], int(binding["HostPort"]))
        for port, bindings in container.ports.items()
        for binding in bindings or ()
    )


def led_to_containers(inside: Callable[..., list[str]]) -> frozenset[invariants.Address]:
    """Return the host ports that the firewall forwards; `inside` runs a command in its network."""
    return led_by(run(*inside("iptables", "-w", "-t", "nat", "-S", "DOCKER")))


def led_by(rules: str) -> frozenset[invariants.Address]:
    """Return the host ports that nat rules forward, from the output of `iptables -S`."""
    return frozenset((protocol, int(port)) for protocol, port in _DNAT.findall(rules))


def remove_container(container: Any, *, volumes: bool = False) -> None:
    """Remove a container, which its agent may be removing, too; returns once it is gone."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            container.remove(force=True, v=volumes)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code != HTTPStatus.CONFLICT or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
