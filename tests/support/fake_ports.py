"""The host ports that a fake engine publishes."""

from agent.domain import errors
from tests.support.fake_container import FakeContainer
from tiltyard.contract import NetworkMode


class FakePorts:
    """Ports by protocol and number: published for a container, or used by another program."""

    def __init__(self) -> None:
        self._occupied: set[tuple[str, int]] = set()
        self._published: dict[tuple[str, int], str] = {}

    @property
    def published(self) -> dict[tuple[str, int], str]:
        """The id of the container of each published port."""
        return dict(self._published)

    def occupy(self, protocol: str, port: int) -> None:
        """Occupy a port by another program of the host."""
        self._occupied.add((protocol, port))

    def vacate(self, protocol: str, port: int) -> None:
        self._occupied.discard((protocol, port))

    def take(self, held: FakeContainer) -> None:
        """Publish the ports of a container; raises PortTakenError."""
        if held.spec.network_mode is NetworkMode.HOST:
            return
        wanted = [(port.protocol.value, port.host) for port in held.spec.ports]
        for protocol, port in wanted:
            if (protocol, port) in self._occupied or (protocol, port) in self._published:
                raise errors.PortTakenError(protocol, port)
        self._published.update(dict.fromkeys(wanted, held.id))

    def free(self, held: FakeContainer) -> None:
        """Publish the ports of a container no longer."""
        for port in held.spec.ports:
            if self._published.get((port.protocol.value, port.host)) == held.id:
                del self._published[port.protocol.value, port.host]
