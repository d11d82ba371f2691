"""The environment of a container: what the host injects, and what the caller sets. Pure."""

import re
from collections.abc import Mapping

from agent.domain.errors import InvalidArgumentError
from agent.domain.session import Port
from tiltyard.contract import PortRequest

MAX_VARIABLE_BYTES = 128 * 1024 - 1
"""Of `NAME=value`: with its NUL the kernel takes 128 KiB, and starts no process with more."""

MAX_ENVIRONMENT_BYTES = 1024 * 1024
"""Of all variables together, as they are once they are expanded."""


def injected_environment(
    prefixes: tuple[str, ...], session_id: str, host: str, ports: tuple[Port, ...]
) -> dict[str, str]:
    """Return the variables that describe the container to itself."""
    values = {"SESSION_ID": session_id, "CONTAINER": session_id, "HOST": host, "IP": host}
    return _named(prefixes, values | {_port(port): str(port.own) for port in ports})


def longest_injected(
    prefixes: tuple[str, ...], session_id: str, host: str, ports: tuple[PortRequest, ...]
) -> dict[str, str]:
    """Return the same before the ports are known: each is as long as a port can be."""
    return injected_environment(prefixes, session_id, host, ()) | _named(
        prefixes, {_port(port): "65535" for port in ports}
    )


def check_environment(caller: Mapping[str, str], injected: Mapping[str, str]) -> None:
    """Check the variables of a caller without expanding them: the result may be very large.

    Raises:
        InvalidArgumentError: A variable is one that the host sets, or is too large once it is
            expanded, or all of them are.
    """
    references = _references(injected)
    longer = {name: _size(value) for name, value in injected.items()}
    total = sum(_size(name) + 1 + size for name, size in longer.items())
    for name, value in caller.items():
        if name in injected:
            raise InvalidArgumentError("env", f"{name} is set by the host")
        size = _size(name) + 1 + _size(value)
        for found in references.finditer(value):
            size += longer[found[1] or found[2]] - len(found[0])
        if size > MAX_VARIABLE_BYTES:
            raise InvalidArgumentError(
                "env", f"{name:.64} has more than {MAX_VARIABLE_BYTES} bytes once it is expanded"
            )
        total += size
    if total > MAX_ENVIRONMENT_BYTES:
        raise InvalidArgumentError("env", f"it has more than {MAX_ENVIRONMENT_BYTES} bytes in all")


def container_environment(
    caller: Mapping[str, str], injected: Mapping[str, str]
) -> dict[str, str]:
    """Return the caller's variables with injected names expanded, and the injected ones.

    `$NAME` and `${NAME}` are expanded for exactly the injected names, longest first; any other
    `$` stays. `check_environment` has accepted the caller's variables.
    """
    references = _references(injected)
    return {
        name: references.sub(lambda found: injected[found[1] or found[2]], value)
        for name, value in caller.items()
    } | dict(injected)


def _references(injected: Mapping[str, str]) -> re.Pattern[str]:
    longest_first = sorted(injected, key=len, reverse=True)
    names = "|".join(re.escape(name) for name in longest_first)
    return re.compile(rf"\$(?:({names})|\{{({names})\}})")


def _named(prefixes: tuple[str, ...], values: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}_{name}": value for prefix in prefixes for name, value in values.items()}


def _port(port: Port | PortRequest) -> str:
    return f"PORT_{port.protocol.value.upper()}_{port.container}"


def _size(text: str) -> int:
    return len(text.encode())
