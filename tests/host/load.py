"""Callers and players of a whole host, who go on while it has faults."""

import http.client
import itertools
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Self

from tests.demo_game.player import udp_round_trip
from tests.docker.stack import eventually, udp_port_of
from tests.host.whole_host import WARM, WholeHost
from tests.support.api_client import ApiError

QUIET = ("--lines-per-second", "0.2")  # Emulation is slow
_LIVE = 2  # Sessions that stay while others start
_STARTS: tuple[Mapping[str, object], ...] = (
    {"args": QUIET, "restart": True},
    {"args": QUIET},
    {"image": WARM},
)
_AGAIN = 1.0  # Seconds before the next try after a failure


class Load:
    """Sessions are started, claimed, played and stopped within the context."""

    def __init__(self, host: WholeHost) -> None:
        self._host = host
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load")
        self.rounds = 0  # How many sessions were started and played
        self.failures: list[str] = []
        self.longest_gap = 0.0  # The most seconds from one played session to the next

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def plays(self, rounds: int) -> None:
        """Wait until `rounds` more sessions were started and played."""
        until = self.rounds + rounds
        patience = 60 * rounds * self._host.system.slowness
        eventually(
            lambda: self.rounds >= until or not self._thread.is_alive(),
            "sessions are played",
            patience=patience,
        )
        assert self._thread.is_alive()

    def is_refused(self) -> None:
        """Wait until a start is refused for lack of capacity, or since nothing can be stored."""
        known = len(self.failures)
        causes = (": 420 ", "the database failed")
        eventually(
            lambda: any(cause in each for each in self.failures[known:] for cause in causes),
            "a start is refused",
            patience=self._host.patience,
        )

    def _work(self) -> None:
        live: deque[str] = deque()
        played = time.monotonic()
        for how in itertools.cycle(_STARTS):
            if self._over.is_set():
                return
            try:
                made = self._host.start(**how)
                live.append(made["id"])
                udp_round_trip(made["host"], udp_port_of(made))
                self.rounds += 1
                now = time.monotonic()
                self.longest_gap = max(self.longest_gap, now - played)
                played = now
                while len(live) > _LIVE:
                    self._host.client.delete_session(live.popleft())  # It may have ended
            except (ApiError, OSError, http.client.HTTPException) as error:
                self.failures.append(str(error))
                self._over.wait(_AGAIN)
