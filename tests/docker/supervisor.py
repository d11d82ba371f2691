"""Supervise an agent like systemd: `Type=notify`, `WatchdogSec=`, `Restart=always`."""

import socket
import threading
from typing import Self

from tests.docker.killed_agent import KilledAgent


class Supervisor:
    """Restarts an agent that does not notify for `watchdog` seconds.

    Entering the context restarts the agent with the notification socket.
    """

    def __init__(self, agent: KilledAgent, watchdog: float) -> None:
        self._agent = agent
        self._wrapper = agent.wrapper
        self._watchdog = watchdog
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notifications: list[str] = []
        self.restarts = 0

    def __enter__(self) -> Self:
        path = self._agent.folder / "notify"
        self._socket.bind(str(path))
        self._socket.settimeout(self._watchdog)
        environment = (f"NOTIFY_SOCKET={path}", f"WATCHDOG_USEC={round(self._watchdog * 10**6)}")
        self._agent.wrapper = [*self._wrapper, "env", *environment]
        self._agent.come_back_as_it_is()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()
        self._agent.wrapper = self._wrapper

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                self.notifications.append(self._socket.recv(1024).decode())
            except TimeoutError:
                self._agent.come_back_as_it_is()
                self.restarts += 1
