"""The host ports of a range, and who holds them. Pure: whether others have a port is asked.

Free ports queue: the next one taken is the one that has been free longest. So a port returns
within 180 s of its release only when no other port is free (decisions.md, host ports), without
a timer. One that somebody else on the host has goes to the end of the queue. TCP and UDP are
separate spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.errors import NoFreePort, PortOutOfRange, PortTaken
from agent.sessions.session import Port, PortRequest, Protocol

TRIES = 256
"""Ports of others that are passed over for one request; it takes 20 ms to find so many in use."""


class PortPool:
    """The ports `first` to `last` of a host, both included.

    `is_free` tells whether nobody else on the host has a port.
    """

    def __init__(
        self,
        first: int,
        last: int,
        is_free: Callable[[Protocol, int], bool] = lambda _protocol, _port: True,
    ) -> None:
        self.first = first
        self.last = last
        self._is_free = is_free
        self._free: dict[Protocol, dict[int, None]] = {
            protocol: dict.fromkeys(range(first, last + 1)) for protocol in Protocol
        }
        self._held: dict[str, tuple[Port, ...]] = {}

    def free(self, protocol: Protocol) -> int:
        """How many ports of the range no session holds."""
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
        freed = self._held.pop(internal_id, ())
        others = {(port.protocol, port.host) for held in self._held.values() for port in held}
        for port in freed:
            in_range = self.first <= port.host <= self.last
            if in_range and (port.protocol, port.host) not in others:
                self._put_last(port.protocol, port.host)

    def avoid(self, ports: Sequence[Port]) -> None:
        """Put free ports at the end of the queue, as if they were released now in this order."""
        for port in ports:
            if port.host in self._free[port.protocol]:
                self._put_last(port.protocol, port.host)

    def _take(self, request: PortRequest) -> int:
        free, protocol = self._free[request.protocol], request.protocol
        if request.pinned:
            port = request.pinned
            if not self.first <= port <= self.last:
                raise PortOutOfRange(port, self.first, self.last)
            if port in free and self._took(protocol, port):
                return port
            raise PortTaken(protocol.value, port)
        for _ in range(min(len(free), TRIES)):
            port = next(iter(free))
            if self._took(protocol, port):
                return port
        raise NoFreePort(protocol.value)

    def _took(self, protocol: Protocol, port: int) -> bool:
        """Take a free port out of the queue, or put it at its end when somebody else has it."""
        if self._is_free(protocol, port):
            del self._free[protocol][port]
            return True
        self._put_last(protocol, port)
        return False

    def _put_last(self, protocol: Protocol, port: int) -> None:
        free = self._free[protocol]
        free.pop(port, None)
        free[port] = None

    def _give_back_first(self, ports: Sequence[Port]) -> None:
        """Undo: the ports were never used, so they keep their place at the head."""
        for protocol in Protocol:
            mine = [port.host for port in ports if port.protocol is protocol]
            self._free[protocol] = dict.fromkeys(mine) | self._free[protocol]
