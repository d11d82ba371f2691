"""A control plane that leaves silent streams alone: `python -m tests.docker.long_streams`.

Where no stream may break, one whose host stands still for some seconds shall not, either.
"""

from contextlib import AbstractContextManager
from unittest import mock

from controlplane.cli.main import main
from tests.support.harness import ControlPlaneProcess

SECONDS = 20.0


class LongStreams(ControlPlaneProcess):
    """Dials a host anew after 20 s of silence instead of 6."""

    program = "tests.docker.long_streams"


def long_streams() -> AbstractContextManager[object]:
    """Have this process be such a control plane."""
    return mock.patch("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", SECONDS)


if __name__ == "__main__":
    with long_streams():
        main()
