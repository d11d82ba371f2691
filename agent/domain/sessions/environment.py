"""The strings of a program: its arguments, injected variables and the caller's. Pure.

The kernel executes no program whose strings exceed 2 MiB in all. The limits here add up to less,
pointers and the strings of an image included, which are at most 147 KiB (`why_refused`).
"""

import re
from collections.abc import Mapping, Sequence

from agent.domain.errors import InvalidArgumentError
from agent.domain.sessions.session import Port, Session
from tiltyard.contract import PortRequest

MAX_STRING_BYTES = 128 * 1024 - 1
"""The kernel's limit for an argument or `NAME=value` without its NUL."""

MAX_ENVIRONMENT_BYTES = 1024 * 1024  # Limit of all variables together, expanded
MAX_ARGUMENTS_BYTES = 512 * 1024  # Limit of all arguments together, expanded


def injected_environment(
    prefixes: tuple[str, ...], session_id: str, host: str, ports: tuple[Port, ...]
) -> dict[str, str]:
    """Return the variables that describe the container to itself."""
    values = {"SESSION_ID": session_id, "CONTAINER": session_id, "HOST": host, "IP": host}
    return _named(prefixes, values | {_port(port): str(port.own) for port in ports})


def traced_environment(session: Session) -> dict[str, str]:
    """Return the variable with the trace of the request that started a session, if it has one.

    The caller's own variable of that name replaces it.
    """
    traceparent = session.spec.identity.traceparent
    return {"TRACEPARENT": traceparent} if traceparent else {}


def longest_injected(
    prefixes: tuple[str, ...], session_id: str, host: str, ports: tuple[PortRequest, ...]
) -> dict[str, str]:
    """Return the same before the ports are known, with the longest possible value for each."""
    return injected_environment(prefixes, session_id, host, ()) | _named(
        prefixes, {_port(port): "65535" for port in ports}
    )


def check_environment(caller: Mapping[str, str], injected: Mapping[str, str]) -> None:
    """Check the caller's variables without expanding them: the result may be very large.

    Raises InvalidArgumentError for an injected name, or if the expanded size exceeds a limit.
    """
    references = _references(injected)
    lengths = _sizes(injected)
    total = sum(_size(name) + 1 + length for name, length in lengths.items())
    for name, value in caller.items():
        if name in injected:
            raise InvalidArgumentError("env", f"{name} is set by the host")
        size = _size(name) + 1 + _expanded_size(value, references, lengths)
        if size > MAX_STRING_BYTES:
            raise InvalidArgumentError(
                "env", f"{name:.64} has more than {MAX_STRING_BYTES} bytes after expansion"
            )
        total += size
    if total > MAX_ENVIRONMENT_BYTES:
        raise InvalidArgumentError("env", f"it has more than {MAX_ENVIRONMENT_BYTES} bytes in all")


def check_arguments(arguments: Sequence[str], injected: Mapping[str, str]) -> None:
    """Check the caller's arguments without expanding them, as `check_environment` does.

    Raises InvalidArgumentError if the expanded size exceeds a limit.
    """
    references = _references(injected)
    lengths = _sizes(injected)
    sizes = [_expanded_size(argument, references, lengths) for argument in arguments]
    for number, size in enumerate(sizes, start=1):
        if size > MAX_STRING_BYTES:
            raise InvalidArgumentError(
                "args", f"number {number} has more than {MAX_STRING_BYTES} bytes after expansion"
            )
    if sum(sizes) > MAX_ARGUMENTS_BYTES:
        raise InvalidArgumentError("args", f"it has more than {MAX_ARGUMENTS_BYTES} bytes in all")


def container_environment(
    caller: Mapping[str, str], injected: Mapping[str, str]
) -> dict[str, str]:
    """Return the caller's variables with injected names expanded, and the injected ones.

    `$NAME` and `${NAME}` are expanded for injected names only, longest first. The caller's
    variables must have passed `check_environment`.
    """
    references = _references(injected)
    expanded = {name: _expanded(value, references, injected) for name, value in caller.items()}
    return expanded | dict(injected)


def expanded_program(
    program: Sequence[str], arguments: Sequence[str], injected: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a program with injected names expanded in the caller's arguments, which end it.

    What the image itself names is left as it is. The arguments must have passed
    `check_arguments`; the rule is that of `container_environment`.
    """
    references = _references(injected)
    first = len(program) - len(arguments)
    expanded = (_expanded(argument, references, injected) for argument in program[first:])
    return (*program[:first], *expanded)


def _references(injected: Mapping[str, str]) -> re.Pattern[str]:
    longest_first = sorted(injected, key=len, reverse=True)
    names = "|".join(re.escape(name) for name in longest_first)
    return re.compile(rf"\$(?:({names})|\{{({names})\}})")


def _expanded(text: str, references: re.Pattern[str], injected: Mapping[str, str]) -> str:
    return references.sub(lambda found: injected[found[1] or found[2]], text)


def _expanded_size(text: str, references: re.Pattern[str], lengths: Mapping[str, int]) -> int:
    size = _size(text)
    for found in references.finditer(text):
        size += lengths[found[1] or found[2]] - len(found[0])
    return size


def _sizes(injected: Mapping[str, str]) -> dict[str, int]:
    return {name: _size(value) for name, value in injected.items()}


def _named(prefixes: tuple[str, ...], values: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}_{name}": value for prefix in prefixes for name, value in values.items()}


def _port(port: Port | PortRequest) -> str:
    return f"PORT_{port.protocol.value.upper()}_{port.container}"


def _size(text: str) -> int:
    return len(text.encode())
