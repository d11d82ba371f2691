"""The host ports of a range, and who holds them. Pure: whether others have a port is asked.

Free ports queue: the next one taken is the one that has been free longest, so that a port returns
soon after its release only when no other is free. One that another process uses goes to the end.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.domain.errors import NoFreePortError, PortOutOfRangeError, PortTakenError
from agent.domain.session import Port
from tiltyard.contract import PortRequest, Protocol

TRIES = 256
"""Ports in use that are skipped for one request; checking that number takes 20 ms."""


class PortPool:
    """The ports `first` to `last` of a host, both included.

    `is_free` returns whether no other process of the host uses a port.
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
        self._holders: Counter[tuple[Protocol, int]] = Counter()
        """How many sessions hold a port: adopted ones may have one in common."""

    def free(self, protocol: Protocol) -> int:
        """How many ports of the range no session holds."""
        return len(self._free[protocol])

    def reserve(
        self, internal_id: str, requests: Sequence[PortRequest], *, in_host: bool = False
    ) -> tuple[Port, ...]:
        """Hold a port for each request, in their order, or none at all.

        In the host's network, `in_host`, a TLS port takes two.

        Raises:
            PortOutOfRangeError: A pinned port is not of the range.
            PortTakenError: A pinned port is in use.
            NoFreePortError: No other port is free.
        """
        taken: dict[int, Port] = {}
        try:
            # Pinned ports first: otherwise "any" could take the one that another request names.
            for index, request in sorted(enumerate(requests), key=lambda item: not item[1].pinned):
                host = self._take(request)
                taken[index] = Port(request.container, request.protocol, host, request.tls)
            for index, request in enumerate(requests if in_host else ()):
                if request.tls:
                    inner = self._take(replace(request, pinned=0))
                    taken[index] = replace(taken[index], inner=inner)
        except Exception:
            self._give_back_first(tuple(taken.values()))
            raise
        ports = tuple(taken[index] for index in range(len(requests)))
        self._hold(internal_id, ports)
        return ports

    def adopt(self, internal_id: str, ports: tuple[Port, ...]) -> None:
        """Hold the ports of a session that already has them."""
        for protocol, number in _numbers(ports):
            self._free[protocol].pop(number, None)
        self._hold(internal_id, ports)

    def release(self, internal_id: str) -> None:
        """Put a session's ports at the end of the queue; nothing happens when it holds none."""
        for protocol, number in self._let_go(internal_id):
            if self.first <= number <= self.last:
                self._put_last(protocol, number)

    def avoid(self, ports: Sequence[Port]) -> None:
        """Put free ports at the end of the queue, as if they were released now in this order."""
        for protocol, number in _numbers(ports):
            if number in self._free[protocol]:
                self._put_last(protocol, number)

    def _hold(self, internal_id: str, ports: tuple[Port, ...]) -> None:
        self._let_go(internal_id)
        self._held[internal_id] = ports
        self._holders.update(_numbers(ports))

    def _let_go(self, internal_id: str) -> list[tuple[Protocol, int]]:
        """Take a session's ports from it; give those that no other holds."""
        numbers = _numbers(self._held.pop(internal_id, ()))
        self._holders.subtract(numbers)
        free = [each for each in numbers if self._holders[each] <= 0]
        for each in free:
            del self._holders[each]
        return free

    def _take(self, request: PortRequest) -> int:
        free, protocol = self._free[request.protocol], request.protocol
        if request.pinned:
            port = request.pinned
            if not self.first <= port <= self.last:
                raise PortOutOfRangeError(port, self.first, self.last)
            if port in free and self._took(protocol, port):
                return port
            raise PortTakenError(protocol.value, port)
        for _ in range(min(len(free), TRIES)):
            port = next(iter(free))
            if self._took(protocol, port):
                return port
        raise NoFreePortError(protocol.value)

    def _took(self, protocol: Protocol, port: int) -> bool:
        """Take a free port from the queue; move it to the end if another process uses it."""
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
            mine = [number for each, number in _numbers(ports) if each is protocol]
            self._free[protocol] = dict.fromkeys(mine) | self._free[protocol]


def _numbers(ports: Sequence[Port]) -> list[tuple[Protocol, int]]:
    """The ports of the host that these take."""
    return [(port.protocol, number) for port in ports for number in port.taken]
