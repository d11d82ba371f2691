"""The events of a host for its observers, in the step of the event loop in which it changes.

An event says which part of the state changed; the observer reads the new one from the host.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tiltyard.contract import Protocol

PortOnHost = tuple[Protocol, int]


@dataclass(frozen=True, slots=True)
class Reported:
    """A message of the host has arrived at this time, in seconds of the `ListeningClock`."""

    time: float


@dataclass(frozen=True, slots=True)
class RoomChanged:
    """Its capacity, what is reserved or held of it, or whether it takes sessions."""


@dataclass(frozen=True, slots=True)
class SlotsChanged:
    """The start slots in use, or their number."""


@dataclass(frozen=True, slots=True)
class SpareChanged:
    """The prepared containers, or how many of them starts in flight count on."""


@dataclass(frozen=True, slots=True)
class ImagesChanged:
    """The images that it has pulled."""


@dataclass(frozen=True, slots=True)
class PortsChanged:
    """Each of these ports was taken or released."""

    ports: tuple[PortOnHost, ...]


@dataclass(frozen=True, slots=True)
class DoubtChanged:
    """Whether it is in doubt."""


@dataclass(frozen=True, slots=True)
class LatencyChanged:
    """Its measured latency."""


@dataclass(frozen=True, slots=True)
class FailuresChanged:
    """The failed starts because of which applications avoid it."""


HostEvent = (
    Reported
    | RoomChanged
    | SlotsChanged
    | SpareChanged
    | ImagesChanged
    | PortsChanged
    | DoubtChanged
    | LatencyChanged
    | FailuresChanged
)

Observer = Callable[[HostEvent], None]
