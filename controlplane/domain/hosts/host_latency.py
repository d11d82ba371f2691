"""The latency of a host, measured by ICMP echoes to the addresses that it announces.

A host may announce addresses of others. That only improves its rank among equally full hosts.
"""

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_ADDRESSES = 4  # Maximum number of addresses per host: the first that it announces
MAX_LOOKED_AT = 16  # Maximum number of announced texts that are parsed, including malformed ones
MAX_MISSES = 3  # Consecutive echoes without a reply after which an address is ignored
SMOOTHING = 0.25  # The weight of the newest measurement, against outliers


@dataclass(slots=True)
class _Address:
    seconds: float | None = None
    misses: int = 0

    def note(self, seconds: float | None) -> None:
        if seconds is None:
            self.misses = min(self.misses + 1, MAX_MISSES)
            if self.misses == MAX_MISSES:
                self.seconds = None
            return
        self.misses = 0
        before = seconds if self.seconds is None else self.seconds
        self.seconds = before + SMOOTHING * (seconds - before)


class HostLatency:
    """The measurements of the latency addresses of one host.

    Addresses count as responsive until proven otherwise, also where nothing can be measured.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """Start without addresses; `changed` is called when `seconds` has changed."""
        self._changed = changed
        self.seconds: float | None = None
        """The smoothed round trip to the nearest address, in seconds."""
        self.due = float("-inf")  # Time of the next measurement, in seconds of the monotonic clock
        self._announced: tuple[str, ...] = ()
        self._addresses: dict[str, _Address] = {}

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that are measured."""
        return tuple(self._addresses)

    @property
    def answering(self) -> tuple[str, ...]:
        """The addresses that may reply."""
        return tuple(a for a, found in self._addresses.items() if found.misses < MAX_MISSES)

    @property
    def unresponsive(self) -> tuple[str, ...]:
        """The addresses that do not reply."""
        return tuple(a for a, found in self._addresses.items() if found.misses == MAX_MISSES)

    def announce(self, announced: tuple[str, ...]) -> None:
        """Set the announced addresses; measurements of unchanged ones are kept."""
        announced = announced[:MAX_LOOKED_AT]
        if announced == self._announced:
            return
        self._announced = announced
        known = self._addresses
        self._addresses = {a: known.get(a, _Address()) for a in _pingable(announced)}
        self._update_nearest()

    def note(self, address: str, seconds: float | None) -> bool:
        """Note one echo, None for no reply; return False if the next one is due at once."""
        found = self._addresses.get(address)
        if found is None:  # the host has announced others meanwhile
            return True
        found.note(seconds)
        self._update_nearest()
        return found.misses in {0, MAX_MISSES}

    def forget(self) -> None:
        """Forget all measurements."""
        self._addresses = {address: _Address() for address in self._addresses}
        self._update_nearest()

    def _update_nearest(self) -> None:
        measured = (found.seconds for found in self._addresses.values())
        nearest = min((each for each in measured if each is not None), default=None)
        if nearest != self.seconds:
            self.seconds = nearest
            self._changed()


def _pingable(announced: Iterable[str]) -> tuple[str, ...]:
    """Return the first distinct, well-formed unicast addresses."""
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
