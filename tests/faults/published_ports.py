"""Which host ports lead to containers: as the engine tells, and as the kernel has it."""

import re
import subprocess
from collections.abc import Callable
from typing import Any

from tests.faults.invariants import Address

_DNAT = re.compile(r"-p (tcp|udp) .*--dport (\d+) -j DNAT")


def published(container: Any) -> frozenset[Address]:
    """The host ports that the engine publishes for a container."""
    return frozenset(
        (port.partition("/")[2], int(binding["HostPort"]))
        for port, bindings in container.ports.items()
        for binding in bindings or ()
    )


def led_to_containers(inside: Callable[..., list[str]]) -> frozenset[Address]:
    """The host ports that the firewall leads to containers; `inside` runs a command there."""
    done = subprocess.run(
        inside("iptables", "-w", "-t", "nat", "-S", "DOCKER"),
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return frozenset((protocol, int(port)) for protocol, port in _DNAT.findall(done.stdout))
