"""The hosts of one region and node pool, and their index, which follows the events of hosts."""

from functools import partial

from controlplane.domain.hosts.host_events import (
    DoubtChanged,
    FailuresChanged,
    HostEvent,
    ImagesChanged,
    LatencyChanged,
    Observer,
    PortsChanged,
    Reported,
    RoomChanged,
    SlotsChanged,
    SpareChanged,
)
from controlplane.domain.placement.host_index import HostIndex
from controlplane.fleet.host.facts import HostFacts
from controlplane.fleet.host.host import Host


class Place:
    """Owns the hosts of a region and node pool."""

    def __init__(self) -> None:
        self.index = HostIndex()
        self.revision = 0
        """Grows when hosts come, go, or change their health or images: not with their load."""
        self._hosts: dict[str, Host] = {}
        self._observers: dict[str, Observer] = {}

    @property
    def hosts(self) -> list[Host]:
        """The hosts, whatever their state."""
        return list(self._hosts.values())

    def add(self, host: Host) -> None:
        """Add a host that has not reported, and follow it."""
        self.revision += 1
        self._hosts[host.name] = host
        self.index.add(host.name)
        self.index.set_ports(host.name, host.state.taken_ports)
        follow = partial(self._follow, host.state)
        self._observers[host.name] = follow
        host.state.observers.append(follow)

    def remove(self, host: Host) -> None:
        """Remove a host."""
        host.state.observers.remove(self._observers.pop(host.name))
        self.index.remove(host.name)
        self.revision += 1
        del self._hosts[host.name]

    def _follow(self, host: HostFacts, event: HostEvent) -> None:
        index = self.index
        name = host.name
        match event:
            case Reported(time):
                index.note_report(name, time)
            case RoomChanged():
                self.revision += index.set_room(name, host.room)
            case SlotsChanged():
                index.set_slots(name, host.slots)
            case SpareChanged():
                index.set_shapes(name, host.spare_shapes)
            case ImagesChanged():
                index.set_images(name, host.image_names)
                self.revision += 1
            case PortsChanged(ports):
                index.change_ports(name, ports)
            case DoubtChanged():
                index.set_doubt(name, is_in_doubt=host.in_doubt)
            case LatencyChanged():
                index.set_latency(name, host.latency.seconds)
            case FailuresChanged():
                index.set_avoided(name, host.failures.until())
