"""Containers of an agent on a real engine: whose they are, their ports, their removal."""

import re
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import docker

from agent.domain.engine import LABEL_AGENT
from agent.domain.session import Session
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
    """The internal id of the session that has a container; empty if it waits for one."""
    return invariants.session_of(container.id, container.name, container.labels, sessions)


def published(container: Any) -> frozenset[invariants.Address]:
    """The host ports that the engine publishes for a container."""
    return frozenset(
        (port.partition("/")[2], int(binding["HostPort"]))
        for port, bindings in container.ports.items()
        for binding in bindings or ()
    )


def led_to_containers(inside: Callable[..., list[str]]) -> frozenset[invariants.Address]:
    """The host ports that the firewall leads to containers; `inside` runs a command there."""
    return led_by(run(*inside("iptables", "-w", "-t", "nat", "-S", "DOCKER")))


def led_by(rules: str) -> frozenset[invariants.Address]:
    """The host ports that rules of the nat table, as `iptables -S` prints them, lead on."""
    return frozenset((protocol, int(port)) for protocol, port in _DNAT.findall(rules))


def remove_container(container: Any, *, volumes: bool = False) -> None:
    """Remove a container; its agent may be about it too. It is gone when this returns."""
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
