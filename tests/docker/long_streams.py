"""A control plane that tolerates suspended hosts: `python -m tests.docker.long_streams`."""

from contextlib import AbstractContextManager
from unittest import mock

from controlplane.cli.main import main
from tests.support.harness import ControlPlaneProcess

SECONDS = 20.0


class LongStreams(ControlPlaneProcess):
    """Reconnects to a host after 20 s without messages instead of 6."""

    program = "tests.docker.long_streams"


def long_streams() -> AbstractContextManager[object]:
    """Patch the control plane of this process."""
    return mock.patch("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", SECONDS)


if __name__ == "__main__":
    with long_streams():
        main()
