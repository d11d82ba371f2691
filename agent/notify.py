"""What the service manager is told of the agent, by the protocol of sd_notify(3).

That it serves, that its event loop turns (`WatchdogSec=`), and that it stops. Elsewhere than under
systemd nobody is told.
"""

from __future__ import annotations

import logging
import socket

from agent.clock import Clock
from agent.config import Supervision

log = logging.getLogger(__name__)


class Notifier:
    """Sends datagrams that are never waited for: a service manager that hangs holds up nothing."""

    def __init__(self, supervision: Supervision, clock: Clock) -> None:
        address = supervision.socket
        # A name in the kernel instead of a path is written with @ and begins with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = supervision.watchdog
        self._clock = clock

    def ready(self) -> None:
        """Tell that the agent serves."""
        self._tell("READY=1")

    def stopping(self) -> None:
        """Tell that it has begun to stop, so that the watchdog bites no more."""
        self._tell("STOPPING=1")

    async def beat(self) -> None:
        """Tell twice in each of the watchdog's spans that the event loop turns, for ever."""
        while self._watchdog is not None:
            self._tell("WATCHDOG=1")
            await self._clock.sleep(self._watchdog / 2)

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("cannot tell the service manager %s: %s", state, error)
