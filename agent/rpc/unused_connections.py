"""Connections to `rpc_listen` from which no call came, in the log.

gRPC does not report handshakes that it refuses. But it requests the certificate before each
one, and the control plane calls on each of its connections at once: what has not called by a while
later was refused, or wanted something else. Strangers must not fill the log, so they are counted.
"""

from collections import OrderedDict

from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

PATIENCE_SECONDS = 15.0
"""From the begin of a handshake, which has 10 s, to the first call on its connection."""
LOG_SECONDS = 60.0
"""Between two lines."""
MOST_PEERS = 1024
"""Remembered as callers; more than there can be connections."""


class UnusedConnections:
    """Counts those of one listener, on the event loop."""

    def __init__(self, address: str, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._peers: OrderedDict[str, None] = OrderedDict()
        self._waiting = 0
        self._new = 0
        self._silent = 0
        self._told_at: float | None = None

    def began(self) -> None:
        """Count a handshake."""
        self._new += 1

    def called(self, peer: str) -> None:
        """Note a call, by the address and port of its connection: one handshake led to it."""
        is_known = peer in self._peers
        self._peers[peer] = None
        self._peers.move_to_end(peer)
        if is_known:
            return
        if len(self._peers) > MOST_PEERS:
            self._peers.popitem(last=False)
        if self._waiting:
            self._waiting -= 1
        elif self._new:
            self._new -= 1

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self._clock.sleep(PATIENCE_SECONDS)
            self._look()

    def _look(self) -> None:
        self._silent += self._waiting
        self._waiting, self._new = self._new, 0
        now = self._clock.monotonic()
        if self._silent and (self._told_at is None or now - self._told_at >= LOG_SECONDS):
            log.warning("no call came of connections", count=self._silent, address=self._address)
            self._silent, self._told_at = 0, now
