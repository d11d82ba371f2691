"""Why a session is not ready, in words: the ports that it has not bound. Pure."""

from collections.abc import Iterable

from tiltyard.ends import PortBindings, UnboundPort

MOST_NAMED = 10  # Of each kind: a session declares up to 32 ports


def describe_bindings(bindings: PortBindings) -> str:
    """Describe the ports that nobody can reach, and those that were bound instead.

    Returns "" if all declared ports are bound.
    """
    local = [_name(port) for port in bindings.unbound if port.loopback]
    unbound = [_name(port) for port in bindings.unbound if not port.loopback]
    others = [f"{port.protocol.value}/{port.port}" for port in bindings.others]
    found: list[str] = []
    if local:
        found.append(f"{_listed(local)} {_were(local)} bound on loopback only")
    if unbound:
        found.append(f"{_listed(unbound)} {_were(unbound)} not bound")
        if others:
            found.append(f"{_listed(others)} {_were(others)}")
    return "; ".join(found)


def _name(port: UnboundPort) -> str:
    name = f"{port.protocol.value}/{port.container}"
    return name if port.own == port.container else f"{name} (host port {port.own})"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    left = len(names) - MOST_NAMED
    more = f" and {left} more" if left > 0 else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _were(names: list[str]) -> str:
    return "was" if len(names) == 1 else "were"
