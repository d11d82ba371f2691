"""Notifies systemd of readiness, watchdog keepalives and stopping, with sd_notify(3)."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

READY = "READY=1"
STOPPING = "STOPPING=1"


class Supervision(NamedTuple):
    """Values that systemd passed to the program. An empty `socket` disables notifications.

    `watchdog`: timeout in seconds. `journal_stream`: `device:inode` of the journal's stream.
    """

    socket: str = ""
    watchdog: float | None = None
    journal_stream: str = ""


def read_supervision(environment: Mapping[str, str] = os.environ) -> Supervision:
    """Read the variables of sd_notify(3), sd_watchdog_enabled(3) and systemd.exec(5)."""
    usec = environment.get("WATCHDOG_USEC", "")
    microseconds = int(usec) if usec.isdecimal() else 0
    is_for_us = environment.get("WATCHDOG_PID") in {None, str(os.getpid())}
    return Supervision(
        socket=environment.get("NOTIFY_SOCKET", ""),
        watchdog=microseconds / 10**6 if microseconds and is_for_us else None,
        journal_stream=environment.get("JOURNAL_STREAM", ""),
    )


class Notifier:
    """Sends notifications without blocking."""

    def __init__(
        self, supervision: Supervision, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        address = supervision.socket
        # Abstract sockets are written with @ and begin with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = supervision.watchdog
        self._sleep = sleep

    async def follow(self, serving: asyncio.Event, stopping: asyncio.Event) -> None:
        """Notify of readiness and stopping, with keepalives in between."""
        await serving.wait()
        self.notify(READY)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.beat(), name="watchdog")
            await stopping.wait()
            self.notify(STOPPING)

    async def beat(self) -> None:
        """Send watchdog keepalives twice per timeout, forever."""
        while self._watchdog is not None:
            self.notify("WATCHDOG=1")
            await self._sleep(self._watchdog / 2)

    def notify(self, state: str) -> None:
        """Report a state, unless notifications are disabled; a failure is logged."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("cannot notify the service manager", state=state, error=str(error))
