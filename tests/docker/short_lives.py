"""The control plane with certificates that last for seconds: `python -m tests.docker.short_lives`.

It also reconnects to unresponsive hosts later than `tiltyard-controlplane`.
"""

from datetime import timedelta
from unittest import mock

from controlplane.cli.main import main
from tests.docker.long_streams import LongStreams, long_streams

LIFE = timedelta(seconds=15)
LOOK_EVERY_SECONDS = 0.2


class ShortLived(LongStreams):
    """Renews certificates after 10 s, which expire after 15."""

    program = "tests.docker.short_lives"


if __name__ == "__main__":
    with (
        mock.patch("controlplane.pki.authority.LIFE", LIFE),
        mock.patch("controlplane.fleet.renewal.INTERVAL", LOOK_EVERY_SECONDS),
        long_streams(),
    ):
        main()
