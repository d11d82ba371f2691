"""The host ports of a range, and who holds them. Pure.

Free ports queue: the next one taken is the one that has been free longest. So a port returns
within 180 s of its release only when no other port is free (decisions.md, host ports), without
a timer. TCP and UDP are separate spaces.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.errors import NoFreePort, PortOutOfRange, PortTaken
from agent.session import Port, PortRequest, Protocol


class PortPool:
    """The ports `first` to `last` of a host, both included."""

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self._free: dict[Protocol, dict[int, None]] = {
            protocol: dict.fromkeys(range(first, last + 1)) for protocol in Protocol
        }
        self._held: dict[str, tuple[Port, ...]] = {}

    def free(self, protocol: Protocol) -> int:
        """How many ports of the range nobody holds."""
        return len(self._free[protocol])

    def reserve(self, internal_id: str, requests: Sequence[PortRequest]) -> tuple[Port, ...]:
        """Hold a port for each request, in their order, or none at all.

        Raises PortOutOfRange and PortTaken for pinned ports, NoFreePort for others.
        """
        taken: dict[int, Port] = {}
        try:
            # Pinned ports first: otherwise "any" could take the one that another request names.
            for index, request in sorted(enumerate(requests), key=lambda item: not item[1].pinned):
                host = self._take(request)
                taken[index] = Port(request.container, request.protocol, host, request.tls)
        except Exception:
            self._give_back_first(tuple(taken.values()))
            raise
        ports = tuple(taken[index] for index in range(len(requests)))
        self._held[internal_id] = ports
        return ports

    def adopt(self, internal_id: str, ports: tuple[Port, ...]) -> None:
        """Hold the ports of a session that already has them."""
        for port in ports:
            self._free[port.protocol].pop(port.host, None)
        self._held[internal_id] = ports

    def release(self, internal_id: str) -> None:
        """Put a session's ports at the end of the queue; nothing happens when it holds none."""
        for port in self._held.pop(internal_id, ()):
            if self.first <= port.host <= self.last:
                self._free[port.protocol][port.host] = None

    def avoid(self, ports: Sequence[Port]) -> None:
        """Put ports at the end of the queue: released a while ago, or found to be in use."""
        for port in ports:
            free = self._free[port.protocol]
            if port.host in free:
                del free[port.host]
                free[port.host] = None

    def _take(self, request: PortRequest) -> int:
        free = self._free[request.protocol]
        if not request.pinned:
            if not free:
                raise NoFreePort(request.protocol.value)
            port = next(iter(free))
        else:
            port = request.pinned
            if not self.first <= port <= self.last:
                raise PortOutOfRange(port, self.first, self.last)
            if port not in free:
                raise PortTaken(request.protocol.value, port)
        del free[port]
        return port

    def _give_back_first(self, ports: Sequence[Port]) -> None:
        """Undo: the ports were never used, so they keep their place at the head."""
        for protocol in Protocol:
            mine = [port.host for port in ports if port.protocol is protocol]
            self._free[protocol] = dict.fromkeys(mine) | self._free[protocol]
