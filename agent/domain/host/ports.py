"""Allocation of host ports. Pure: use by other processes is checked by a callback.

Free ports form a queue: the one that has been free longest is next, so that a port is reused as
late as possible. One that another process uses moves to the end. Neighbours are as old as the one
that was released last.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from agent.domain.errors import NoFreePortError, PortOutOfRangeError, PortTakenError
from agent.domain.host.port_runs import best_run
from agent.domain.sessions.session import Port
from tiltyard.contract import PortRequest, Protocol, SessionSpec

TRIES = 256  # Most ports in use that are skipped per request; checking them takes 20 ms
RUN_TRIES = 8  # Most runs of neighbours with ports in use that are skipped per session

_Number = tuple[Protocol, int]


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
        self._range = range(first, last + 1)
        self._is_free = is_free
        self._free = {protocol: dict.fromkeys(self._range, 0) for protocol in Protocol}
        """Free ports in the order of their release, and the number of that release."""
        self._releases = 0
        self._held: dict[str, tuple[Port, ...]] = {}
        self._holders: Counter[_Number] = Counter()
        """Sessions per port: adopted ones may share one."""

    def free(self, protocol: Protocol) -> int:
        """Number of ports of the range that no session holds."""
        return len(self._free[protocol])

    def reserve(
        self,
        internal_id: str,
        requests: Sequence[PortRequest],
        *,
        in_host: bool = False,
        contiguous: bool = False,
    ) -> tuple[Port, ...]:
        """Reserve a port for each request, in their order, or none.

        In the host's network (`in_host`) a TLS port takes two. If `contiguous`, the ports that are
        not pinned are neighbours.

        Raises:
            PortOutOfRangeError: A pinned port is outside the range.
            PortTakenError: A pinned port is in use.
            NoFreePortError: No other port is free, or too few neighbours.
        """
        chosen = _Chosen(requests, in_host=in_host)
        hosts = self._host_ports(requests, chosen, contiguous=contiguous)
        ports: list[Port] = []
        for index, request in enumerate(requests):
            inner = 0
            if in_host and request.tls:
                inner = chosen.add(request.protocol, self._oldest(request, chosen))
            port = Port(
                container=request.container,
                protocol=request.protocol,
                host=hosts[index],
                tls=request.tls,
                inner=inner,
                same=request.same,
            )
            ports.append(port)
        for protocol, number in _numbers(ports):
            del self._free[protocol][number]
        self._hold(internal_id, tuple(ports))
        return tuple(ports)

    def adopt(self, internal_id: str, ports: tuple[Port, ...]) -> None:
        """Reserve the ports of an existing session."""
        for protocol, number in _numbers(ports):
            self._free[protocol].pop(number, None)
        self._hold(internal_id, ports)

    @property
    def all_held(self) -> frozenset[_Number]:
        """The ports of all sessions and prepared containers."""
        return frozenset(self._holders)

    def held(self, holder: str) -> tuple[Port, ...]:
        """The ports of a session, or of a prepared container."""
        return self._held.get(holder, ())

    def in_the_way(self, spec: SessionSpec, holders: Iterable[str]) -> set[str]:
        """The first of these holders whose ports suffice for what a session lacks."""
        requests = spec.ports
        pinned = {(request.protocol, request.pinned) for request in requests if request.pinned}
        holders = list(dict.fromkeys(holders))
        if spec.contiguous and len(pinned) < len(requests):
            return self._holding(pinned, holders) | self._in_the_way_of_run(spec, holders)
        lacking = {protocol: -self.free(protocol) for protocol in Protocol}
        for request in requests:
            lacking[request.protocol] += 2 if request.tls else 1
        found: set[str] = set()
        for holder in holders:
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
            if number in self._range:
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

    def _let_go(self, internal_id: str) -> list[_Number]:
        """Release a session's ports; returns those that no other session holds."""
        numbers = _numbers(self._held.pop(internal_id, ()))
        self._holders.subtract(numbers)
        free = [each for each in numbers if self._holders[each] <= 0]
        for each in free:
            del self._holders[each]
        return free

    def _in_the_way_of_run(self, spec: SessionSpec, holders: Sequence[str]) -> set[str]:
        """The first of these holders without which neighbours would be free."""
        chosen = _Chosen(spec.ports, in_host=spec.in_host)
        requests = [request for request in spec.ports if not request.pinned]
        for request in spec.ports:
            if request.pinned:
                chosen.add(request.protocol, request.pinned)
        ranks = {protocol: dict.fromkeys(free, 0) for protocol, free in self._free.items()}
        for rank, holder in enumerate(holders, 1):
            for protocol, number in _numbers(self.held(holder)):
                ranks[protocol][number] = rank
        first = best_run(requests, ranks, self._range, chosen.unusable)
        if first is None:
            return set()
        run = {(each.protocol, port) for port, each in enumerate(requests, first)}
        return self._holding(run, holders)

    def _holding(self, numbers: AbstractSet[_Number], holders: Iterable[str]) -> set[str]:
        """Return the holders among these that hold one of these ports."""
        return {each for each in holders if not numbers.isdisjoint(_numbers(self.held(each)))}

    def _host_ports(
        self, requests: Sequence[PortRequest], chosen: "_Chosen", *, contiguous: bool
    ) -> dict[int, int]:
        """Choose the host ports, by the place of their request."""
        hosts: dict[int, int] = {}
        # Pinned ports first: otherwise "any" could take the one that another request names.
        for index, request in enumerate(requests):
            if request.pinned:
                hosts[index] = chosen.add(request.protocol, self._pinned(request, chosen))
        others = {index: each for index, each in enumerate(requests) if not each.pinned}
        if contiguous and others:
            first = self._free_run(tuple(others.values()), chosen)
            for host, (index, request) in enumerate(others.items(), first):
                hosts[index] = chosen.add(request.protocol, host)
        else:
            for index, request in others.items():
                hosts[index] = chosen.add(request.protocol, self._oldest(request, chosen))
        return hosts

    def _pinned(self, request: PortRequest, chosen: "_Chosen") -> int:
        port = request.pinned
        protocol = request.protocol
        if port not in self._range:
            raise PortOutOfRangeError(port, self.first, self.last)
        is_free = port in self._free[protocol] and port not in chosen.unusable(request)
        if is_free and self._is_unused(protocol, port):
            return port
        raise PortTakenError(protocol.value, port)

    def _oldest(self, request: PortRequest, chosen: "_Chosen") -> int:
        """The free port that was released longest ago."""
        protocol = request.protocol
        unusable = chosen.unusable(request)
        usable = (port for port in self._free[protocol] if port not in unusable)
        for port in list(islice(usable, TRIES)):
            if self._is_unused(protocol, port):
                return port
        raise NoFreePortError(f"a {protocol.value} port")

    def _free_run(self, requests: Sequence[PortRequest], chosen: "_Chosen") -> int:
        """The first of the free neighbours of which the last one was released longest ago."""
        for _ in range(RUN_TRIES):
            first = best_run(requests, self._free, self._range, chosen.unusable)
            if first is None:
                break
            ports = enumerate(requests, first)
            in_use = [port for port, each in ports if not self._is_unused(each.protocol, port)]
            if not in_use:
                return first
        raise NoFreePortError(f"{len(requests)} neighbouring ports")

    def _is_unused(self, protocol: Protocol, port: int) -> bool:
        """Return whether no other process uses a free port; else it moves to the end."""
        if self._is_free(protocol, port):
            return True
        self._put_last(protocol, port)
        return False

    def _put_last(self, protocol: Protocol, port: int) -> None:
        free = self._free[protocol]
        free.pop(port, None)
        self._releases += 1
        free[port] = self._releases


class _Chosen:
    """The ports chosen so far for the requests of one session."""

    def __init__(self, requests: Sequence[PortRequest], *, in_host: bool) -> None:
        self._used: set[_Number] = set()
        own = [] if in_host else [request for request in requests if not request.same]
        self._bound = {(request.protocol, request.container) for request in own}
        """Ports that the program binds in its own network: no `same` port can be there, too."""

    def add(self, protocol: Protocol, port: int) -> int:
        """Choose a port."""
        self._used.add((protocol, port))
        return port

    def unusable(self, request: PortRequest) -> set[int]:
        """The ports that a request cannot have, since other requests of the session do."""
        numbers = self._used | self._bound if request.same else self._used
        return {port for protocol, port in numbers if protocol is request.protocol}


def _numbers(ports: Sequence[Port]) -> list[_Number]:
    return [(port.protocol, number) for port in ports for number in port.taken]
