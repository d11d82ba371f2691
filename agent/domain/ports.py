"""Allocation of host ports. Pure: use by other processes is checked by a callback.

Free ports form a queue: the one that has been free longest is next, so that a port is reused as
late as possible. One that another process uses moves to the end.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from agent.domain.errors import NoFreePortError, PortOutOfRangeError, PortTakenError
from agent.domain.session import Port
from tiltyard.contract import PortRequest, Protocol

TRIES = 256  # Most ports in use that are skipped per request; checking them takes 20 ms


class PortPool:
    """The ports `first` to `last`, inclusive; `is_free`: no other process uses a port."""

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
        """Sessions per port: adopted ones may share one."""

    def free(self, protocol: Protocol) -> int:
        """Number of ports of the range that no session holds."""
        return len(self._free[protocol])

    def reserve(
        self, internal_id: str, requests: Sequence[PortRequest], *, in_host: bool = False
    ) -> tuple[Port, ...]:
        """Reserve a port for each request, in their order, or none.

        In the host's network (`in_host`) a TLS port takes two.

        Raises:
            PortOutOfRangeError: A pinned port is outside the range.
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
            self._return_unused(tuple(taken.values()))
            raise
        ports = tuple(taken[index] for index in range(len(requests)))
        self._hold(internal_id, ports)
        return ports

    def adopt(self, internal_id: str, ports: tuple[Port, ...]) -> None:
        """Reserve the ports of an existing session."""
        for protocol, number in _numbers(ports):
            self._free[protocol].pop(number, None)
        self._hold(internal_id, ports)

    def held(self, holder: str) -> tuple[Port, ...]:
        """The ports of a session, or of a prepared container."""
        return self._held.get(holder, ())

    def in_the_way(self, requests: Sequence[PortRequest], holders: Iterable[str]) -> set[str]:
        """The first of these holders whose ports suffice for what the requests lack."""
        pinned = {(request.protocol, request.pinned) for request in requests if request.pinned}
        lacking = {protocol: -self.free(protocol) for protocol in Protocol}
        for request in requests:
            lacking[request.protocol] += 2 if request.tls else 1
        found: set[str] = set()
        for holder in dict.fromkeys(holders):
            held = _numbers(self.held(holder))
            is_needed = any(lacking[protocol] > 0 for protocol, _ in held)
            if is_needed or not pinned.isdisjoint(held):
                found.add(holder)
                for protocol, _ in held:
                    lacking[protocol] -= 1
        return found

    def transfer(self, holder: str, internal_id: str) -> tuple[Port, ...]:
        """Give the ports of one holder, such as a prepared container, to a session."""
        ports = self.held(holder)
        self._let_go(holder)
        self._hold(internal_id, ports)
        return ports

    def check_unused(self, ports: Sequence[Port]) -> None:
        """Raise PortTakenError if another process uses one of these held ports."""
        for protocol, number in _numbers(ports):
            if not self._is_free(protocol, number):
                raise PortTakenError(protocol.value, number)

    def release(self, internal_id: str) -> None:
        """Return a session's ports, if any, to the end of the queue."""
        for protocol, number in self._let_go(internal_id):
            if self.first <= number <= self.last:
                self._put_last(protocol, number)

    def avoid(self, ports: Sequence[Port]) -> None:
        """Move free ports to the end of the queue, in this order."""
        for protocol, number in _numbers(ports):
            if number in self._free[protocol]:
                self._put_last(protocol, number)

    def _hold(self, internal_id: str, ports: tuple[Port, ...]) -> None:
        self._let_go(internal_id)
        self._held[internal_id] = ports
        self._holders.update(_numbers(ports))

    def _let_go(self, internal_id: str) -> list[tuple[Protocol, int]]:
        """Release a session's ports; returns those that no other session holds."""
        numbers = _numbers(self._held.pop(internal_id, ()))
        self._holders.subtract(numbers)
        free = [each for each in numbers if self._holders[each] <= 0]
        for each in free:
            del self._holders[each]
        return free

    def _take(self, request: PortRequest) -> int:
        free = self._free[request.protocol]
        protocol = request.protocol
        if request.pinned:
            port = request.pinned
            if not self.first <= port <= self.last:
                raise PortOutOfRangeError(port, self.first, self.last)
            if port in free and self._try_take(protocol, port):
                return port
            raise PortTakenError(protocol.value, port)
        for _ in range(min(len(free), TRIES)):
            port = next(iter(free))
            if self._try_take(protocol, port):
                return port
        raise NoFreePortError(protocol.value)

    def _try_take(self, protocol: Protocol, port: int) -> bool:
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

    def _return_unused(self, ports: Sequence[Port]) -> None:
        """Return unused ports to the head of the queue."""
        for protocol in Protocol:
            mine = [number for each, number in _numbers(ports) if each is protocol]
            self._free[protocol] = dict.fromkeys(mine) | self._free[protocol]


def _numbers(ports: Sequence[Port]) -> list[tuple[Protocol, int]]:
    return [(port.protocol, number) for port in ports for number in port.taken]
