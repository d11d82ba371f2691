"""One host's drain: orders are repeated until the host acknowledges them, and adopted from it.

The order with the highest revision holds. One that was given on the host itself has the revision
of the control plane's order before it, and holds until the next one. If a host reports a higher
revision than ours, the database is older than that order, which is adopted as well; the next order
has a higher revision.
"""

import asyncio
from collections.abc import Callable
from random import Random

from controlplane.domain.contract import Drain
from controlplane.domain.errors import AgentRefusedError, AgentSilentError
from controlplane.fleet.host.state import FIRST_RETRY, HostState
from controlplane.storage.tables.hosts import HostStore
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock, unix_ms
from tiltyard.runtime.logging.context import task_context
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

MAX_BACK_OFF = 2.0
"""An order reaches a host so soon after its return."""


class HostDrain:
    """Owns what one host is told of its drain."""

    def __init__(
        self,
        host: HostState,
        store: HostStore,
        *,
        clock: Clock,
        random: Random,
        changed: Callable[[HostState], None],
    ) -> None:
        """Call `changed` when the host has taken an order."""
        self._host = host
        self._store = store
        self._clock = clock
        self._random = random
        self._changed = changed
        self._stored = host.drain
        self._telling: asyncio.Task[None] | None = None

    async def reported(self, *, reconnected: bool) -> None:
        """Take note of what the host just said: learn its order, or tell it ours.

        `reconnected`: a call from before may hang on a dead connection.

        Raises:
            StoreError: It cannot be written.
        """
        learned = self._host.drain
        if learned != self._stored:
            await self._store.learn_drain(self._host.name, learned)
            log.info("learned of its drain", agent=self._host.name, draining=learned.draining)
            if self._stored.revision <= learned.revision:  # else there was an order meanwhile
                self._stored = learned
        if self._host.drain_due:
            if reconnected:
                await self.close()
            self._tell()

    def order(self, drain: Drain) -> None:
        """Tell the host an order that is in the database, however long that takes."""
        self._stored = drain
        self._host.order_drain(drain)
        self._changed(self._host)
        self._tell()

    async def told(self, timeout: float) -> None:
        """Wait until the host has taken what it is being told, at most `timeout` seconds."""
        if self._telling is not None:
            await asyncio.wait({self._telling}, timeout=timeout)

    async def close(self) -> None:
        """Tell it nothing now."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    def _tell(self) -> None:
        if self._telling is None or self._telling.done():
            name = f"tell the drain of {self._host.name}"
            own = task_context(agent=self._host.name)
            self._telling = asyncio.create_task(self._tell_until_taken(), name=name, context=own)

    async def _tell_until_taken(self) -> None:
        name, logged = self._host.name, ""
        back_off = BackOff(self._clock, self._random, first=FIRST_RETRY, longest=MAX_BACK_OFF)
        while self._host.drain_due:
            order = self._host.drain
            try:
                await self._host.client.set_drain(order, unix_ms(self._clock))
            except (AgentRefusedError, AgentSilentError) as error:
                if str(error) != logged:
                    logged = str(error)
                    log.warning("cannot tell it of its drain", agent=name, error=str(error))
                await back_off.wait()
            else:
                self._host.heard_drain(order)
                self._changed(self._host)
                if self._host.report is None:
                    return  # what it says when it is heard tells whether more is due
