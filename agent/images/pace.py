"""The lowest rate at which a registry may send an image. Pure.

A slower pull ends, so that a registry cannot hold a slot of the host, and the downloads of the
engine, without limit.
"""

from tiltyard.contract import MEBI
from tiltyard.images import PullProgress

LEAST_BYTES = 8 * MEBI  # In each window: 1.1 Mbit/s, at which 30 min are enough for 240 MiB
WINDOW_SECONDS = 60.0

TOO_SLOW = f"the registry sent less than {LEAST_BYTES // MEBI} MiB in {WINDOW_SECONDS:g} s"


class PullPace:
    """The rate of one pull, over windows of time in which the registry was sending layers.

    Other time does not count: the engine unpacks layers, or downloads those of other pulls.
    """

    def __init__(self, now: float) -> None:
        self._last = now
        self._is_sending = False
        self._seconds = 0.0  # Of the window
        self._received = 0  # Bytes before the window

    def is_too_slow(self, progress: PullProgress, now: float) -> bool:
        """Note the progress at a time; True if the registry sent too little in a window."""
        if self._is_sending:
            self._seconds += now - self._last
        self._last = now
        self._is_sending = progress.downloading > 0
        if self._seconds < WINDOW_SECONDS:
            return False
        received = progress.received_bytes - self._received
        self._seconds = 0.0
        self._received = progress.received_bytes
        return received < LEAST_BYTES
