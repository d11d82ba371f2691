"""TLS handshakes that fail, in the log: asyncio does not report them.

A port scan must not fill the log: each kind is logged once a minute, with a count.
"""

import ssl
import time
from collections.abc import Callable

from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

INTERVAL = 60.0
"""Seconds between two lines of one kind."""

MAX_KINDS = 64
"""OpenSSL has some hundred reasons; a client must not choose how many are remembered."""


class Handshakes:
    """Counts the handshakes of one listener that failed, by OpenSSL's reason."""

    def __init__(self, where: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._where = where
        self._monotonic = monotonic
        self._unlogged: dict[str, int] = {}
        self._logged_at: dict[str, float] = {}

    def watch(self, context: ssl.SSLContext) -> None:
        """Log the failed handshakes of a context."""

        def failed(error: ssl.SSLError) -> None:
            self.failed(error.reason or "UNKNOWN")

        class Watched(ssl.SSLObject):
            """What asyncio makes a handshake with."""

            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError as error:
                    failed(error)
                    raise

        context.sslobject_class = Watched

    def failed(self, reason: str) -> None:
        """Count one, and log it if the last line of its kind is old."""
        kind = reason if reason in self._unlogged or len(self._unlogged) < MAX_KINDS else "other"
        now = self._monotonic()
        if now - self._logged_at.get(kind, -INTERVAL) < INTERVAL:
            self._unlogged[kind] += 1
            return
        more = self._unlogged.get(kind, 0)
        self._unlogged[kind], self._logged_at[kind] = 0, now
        log.warning("refused TLS handshakes", address=self._where, kind=kind, count=more + 1)
