"""Notifications to the service manager, by the protocol of sd_notify(3).

That it serves, that its event loop runs (`WatchdogSec=`), and that it stops. Without systemd
nothing is sent.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


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


class Notifier:
    """Sends datagrams without waiting: a service manager that hangs blocks nothing."""

    def __init__(
        self,
        supervision: Supervision,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        address = supervision.socket
        # A name in the kernel instead of a path is written with @ and begins with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = supervision.watchdog
        self._sleep = sleep

    async def follow(self, serving: asyncio.Event, stopping: asyncio.Event) -> None:
        """Notify when the program is ready and when it stops; keepalives in between."""
        await serving.wait()
        self.ready()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.beat(), name="watchdog")
            await stopping.wait()
            self.stopping()

    def ready(self) -> None:
        """Notify that it serves."""
        self._notify("READY=1")

    def stopping(self) -> None:
        """Notify that the program is stopping."""
        self._notify("STOPPING=1")

    async def beat(self) -> None:
        """Send watchdog keepalives twice per interval, for ever."""
        while self._watchdog is not None:
            self._notify("WATCHDOG=1")
            await self._sleep(self._watchdog / 2)

    def _notify(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("cannot notify the service manager", state=state, error=str(error))
