"""What the service manager asks of a service that it started."""

import os
from collections.abc import Mapping
from typing import NamedTuple


class Supervision(NamedTuple):
    """The notification socket of a service manager; none without a `socket`.

    `watchdog` is the interval in seconds after which it considers the program hung.
    `journal_stream` names the file that leads to its journal, as `device:inode`.
    """

    socket: str = ""
    watchdog: float | None = None
    journal_stream: str = ""


def read_supervision(environment: Mapping[str, str] = os.environ) -> Supervision:
    """Read systemd's variables: sd_notify(3), sd_watchdog_enabled(3), systemd.exec(5)."""
    asked = environment.get("WATCHDOG_USEC", "")
    microseconds = int(asked) if asked.isdecimal() else 0
    is_for_us = environment.get("WATCHDOG_PID") in {None, str(os.getpid())}
    return Supervision(
        socket=environment.get("NOTIFY_SOCKET", ""),
        watchdog=microseconds / 10**6 if microseconds and is_for_us else None,
        journal_stream=environment.get("JOURNAL_STREAM", ""),
    )
