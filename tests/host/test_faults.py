"""Faults of a whole machine, while sessions are started, stopped and played."""

from random import Random

import pytest

from tests.faults.plugin import Figure, Rounds
from tests.host.invariants import assert_survived
from tests.host.load import Load
from tests.host.whole_host import WholeHost

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
