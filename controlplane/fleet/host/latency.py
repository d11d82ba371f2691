"""How far away a host is, as its latency addresses answer ICMP echoes. Pure.

A host may announce any address, also one that is not its own. That gains it a better rank among
hosts that are equally full, and no more: a few well-formed addresses of each host count.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

MAX_ADDRESSES = 4
"""Of one host: those that it announces first."""

MAX_LOOKED_AT = 16
"""Of what a host announces: what is no address is passed over, but not without end."""

MAX_MISSES = 3
"""Echoes in a row without an answer after which an address is left out."""

SMOOTHING = 0.25
"""The weight of the newest measurement: one outlier does not move a host."""


@dataclass(slots=True)
class _Address:
    ms: float | None = None
    misses: int = 0

    def note(self, ms: float | None) -> None:
        if ms is None:
            self.misses = min(self.misses + 1, MAX_MISSES)
            if self.misses == MAX_MISSES:
                self.ms = None
            return
        self.misses = 0
        self.ms = ms if self.ms is None else self.ms + SMOOTHING * (ms - self.ms)


class HostLatency:
    """What is known of the latency addresses of one host.

    An address is taken to answer until it is known not to: where nothing can be measured none is
    left out, and none is nearer than another.
    """

    def __init__(self) -> None:
        self.ms: float | None = None
        """The smoothed round trip to the nearest address, in milliseconds."""
        self.due = float("-inf")
        """When it is to be measured next, in seconds of the monotonic clock."""
        self._announced: tuple[str, ...] = ()
        self._addresses: dict[str, _Address] = {}

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that count."""
        return tuple(self._addresses)

    @property
    def answering(self) -> tuple[str, ...]:
        """Those that may answer."""
        return tuple(a for a, found in self._addresses.items() if found.misses < MAX_MISSES)

    @property
    def silent(self) -> tuple[str, ...]:
        """Those that do not answer."""
        return tuple(a for a, found in self._addresses.items() if found.misses == MAX_MISSES)

    def announce(self, announced: tuple[str, ...]) -> None:
        """Take in what the host reports; what is known of an address that stays is kept."""
        announced = announced[:MAX_LOOKED_AT]
        if announced == self._announced:
            return
        self._announced = announced
        known = self._addresses
        self._addresses = {a: known.get(a, _Address()) for a in _pingable(announced)}
        self._find_nearest()

    def note(self, address: str, ms: float | None) -> bool:
        """Note one echo, None for no answer; return whether the next is due after the interval.

        It is due at once while the address may have lost only this one.
        """
        found = self._addresses.get(address)
        if found is None:  # the host has announced others meanwhile
            return True
        found.note(ms)
        self._find_nearest()
        return found.misses in {0, MAX_MISSES}

    def forget(self) -> None:
        """Forget all measurements, as when nothing can be measured any more."""
        self._addresses = {address: _Address() for address in self._addresses}
        self.ms = None

    def _find_nearest(self) -> None:
        measured = (found.ms for found in self._addresses.values())
        self.ms = min((ms for ms in measured if ms is not None), default=None)


def _pingable(announced: Iterable[str]) -> tuple[str, ...]:
    """Give the first well-formed addresses of single hosts, each once: no groups, no networks."""
    found: dict[str, None] = {}
    for text in announced:
        if len(found) == MAX_ADDRESSES:
            break
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            continue
        if not (address.is_multicast or address.is_unspecified or address.is_reserved):
            found[str(address)] = None
    return tuple(found)
