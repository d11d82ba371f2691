"""Starts, stops and players, one after the other, whatever becomes of the host."""

import http.client
import itertools
import threading
from collections import deque
from typing import Self

from tests.demo_game.player import udp_round_trip
from tests.docker.stack import eventually, udp_port_of
from tests.host.whole_host import WholeHost
from tests.support.api_client import ApiError

_LIVE = 2  # Sessions that stay while others start
_QUIET = ("--lines-per-second", "0.2")  # Emulation is slow
_AGAIN = 1.0  # Seconds before the next try after a failure


class Load:
    """Callers and players of a host within the context."""

    def __init__(self, host: WholeHost) -> None:
        self._host = host
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load")
        self.rounds = 0  # How many sessions were started and played

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
        eventually(lambda: self.rounds >= until, "sessions are played", patience=patience)

    def runs_for(self, seconds: float) -> None:
        """Let a random time pass."""
        self._over.wait(seconds)

    def _work(self) -> None:
        live: deque[str] = deque()
        for number in itertools.count():
            if self._over.is_set():
                return
            try:
                made = self._host.start(restart=number % 2 == 0, args=_QUIET)
                live.append(made["id"])
                udp_round_trip(made["host"], udp_port_of(made))
                while len(live) > _LIVE:
                    self._host.end(live.popleft())
            except (ApiError, OSError, http.client.HTTPException):
                self._over.wait(_AGAIN)
            else:
                self.rounds += 1
