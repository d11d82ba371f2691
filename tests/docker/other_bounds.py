"""Control planes with other bounds: `python -m tests.docker.other_bounds CLASS …`."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from unittest import mock

from controlplane.cli.main import main
from tests.support.harness import ControlPlaneProcess


class LongStreams(ControlPlaneProcess):
    """Tolerates suspended hosts: reconnects to one after 20 s without messages instead of 6."""

    program = ("tests.docker.other_bounds", "LongStreams")
    bounds: Mapping[str, object] = {"controlplane.fleet.host.watch.MESSAGE_TIMEOUT": 20.0}


class ShortLived(LongStreams):
    """Renews certificates after 10 s, which expire after 15, too."""

    program = ("tests.docker.other_bounds", "ShortLived")
    bounds: Mapping[str, object] = {
        **LongStreams.bounds,
        "controlplane.pki.authority.LIFE": timedelta(seconds=15),
        "controlplane.fleet.renewal.INTERVAL": 0.2,
        "controlplane.fleet.renewal.TICK": 0.2,
        "tiltyard.runtime.clock.HELD_SECONDS": 0.0,
    }


if __name__ == "__main__":
    with ExitStack() as stack:
        for bound, value in globals()[sys.argv[1]].bounds.items():
            stack.enter_context(mock.patch(bound, value))
        main(sys.argv[2:])
