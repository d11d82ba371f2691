"""The order of prepared containers to one host: the shapes that it is to keep one of."""

from dataclasses import dataclass
from functools import partial

from controlplane.domain.errors import AgentRefusedError
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.state import HostState
from tiltyard.contract import ErrorReason, SessionSpec
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

Shapes = tuple[SessionSpec, ...]


@dataclass(slots=True)
class ShapeOrders:
    """Owns the order of one host. Agents do not store it: it is sent to each new incarnation.

    The order is a hint, by which the first start on a host finds a prepared container. So one that
    the host rejects is not repeated.
    """

    host: HostState
    deliveries: Deliveries
    _newest: Shapes | None = None  # None until it is known
    _answered: tuple[str, Shapes] | None = None
    """The order that the host has answered last, and its incarnation then."""

    def set(self, shapes: Shapes) -> None:
        """Order a prepared container of each of these shapes, in place of the order before."""
        self._newest = shapes
        self.on_change()

    def on_change(self) -> None:
        """Send the order if the host, or what it has reported, needs it."""
        if self._pending() is not None:
            failed = partial(log.warning, "cannot order prepared containers")
            self.deliveries.queue("shapes", attempt=self._attempt, failed=failed)

    def _pending(self) -> Shapes | None:
        """Return the order unless the host has it."""
        host = self.host
        if self._newest is None or host.report is None or host.removed:
            return None
        return None if self._answered == (host.incarnation, self._newest) else self._newest

    async def _attempt(self) -> None:
        while (shapes := self._pending()) is not None:
            incarnation = self.host.incarnation
            try:
                await self.host.client.set_shapes(shapes)
            except AgentRefusedError as error:
                if error.agent_reason is not ErrorReason.UNIMPLEMENTED:  # an older agent
                    log.warning("prepared containers not ordered", error=str(error))
            self._answered = (incarnation, shapes)
