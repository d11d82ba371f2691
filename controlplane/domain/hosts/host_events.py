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
    """The capacity, the reservations or the availability of the host changed."""


@dataclass(frozen=True, slots=True)
class SlotsChanged:
    """The start slots of the host changed: those in use, or their number."""


@dataclass(frozen=True, slots=True)
class SpareChanged:
    """The prepared containers changed, or the number that starts in flight count on."""


@dataclass(frozen=True, slots=True)
class ImagesChanged:
    """The images that the host has pulled changed."""


@dataclass(frozen=True, slots=True)
class PortsChanged:
    """Each of these ports was taken or released."""

    ports: tuple[PortOnHost, ...]


@dataclass(frozen=True, slots=True)
class DoubtChanged:
    """The host came into doubt, or is no longer in doubt."""


@dataclass(frozen=True, slots=True)
class LatencyChanged:
    """The measured latency of the host changed."""


@dataclass(frozen=True, slots=True)
class FailuresChanged:
    """The failed starts for which applications avoid the host changed."""


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
