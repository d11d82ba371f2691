"""Faults of a whole machine, while sessions are started, stopped and played."""

import http.client
import itertools
import threading
from collections import deque
from random import Random
from typing import Self

import pytest

from tests.demo_game.player import udp_round_trip
from tests.docker.stack import eventually, udp_port_of
from tests.faults.plugin import Figure, Rounds
from tests.host.invariants import assert_survived
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


pytestmark = [pytest.mark.host, pytest.mark.root, pytest.mark.registry, pytest.mark.timeout(7200)]

_LATEST_CUT = 3.0  # Seconds after a start at which the power is cut at the latest


def test_f45_power_cut_of_whole_machine(
    host: WholeHost, rounds: Rounds, chance: Random, figure: Figure
) -> None:
    longest = 0.0
    for _ in range(rounds(1, 20)):
        with Load(host) as load:
            load.plays(1)
            load.runs_for(chance.uniform(0, _LATEST_CUT))
            host.system.cut_power()
            longest = max(longest, host.system.power_on())
        assert_survived(host)
    figure("served again after at most", f"{longest:.0f} s")
