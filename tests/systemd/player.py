"""A player who sends continuously and counts the answers."""

import socket
import threading
from typing import Self

from tests.docker.stack import eventually

_PAUSE = 0.02  # Seconds between two datagrams: fifty per second, like a game
_LATE = 0.5  # Seconds without an answer before a check for missing ones
_LOOKS = 20  # Checks after the last datagram; answers still missing then are lost


class SteadyPlayer:
    """Sends numbered datagrams to a session of the demo game within the context."""

    def __init__(self, host: str, port: int, session_id: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect((host, port))
        self._socket.settimeout(_LATE)
        self._session_id = session_id
        self._over = threading.Event()
        self._sender, self._reader = (
            threading.Thread(target=target, name="player") for target in (self._send, self._read)
        )
        self.sent = 0
        self._answered: set[int] = set()
        self.strangers: list[str] = []  # Answers of other sessions

    def __enter__(self) -> Self:
        self._sender.start()
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._sender.join()
        self._reader.join()
        self._socket.close()

    @property
    def lost(self) -> list[int]:
        """Numbers of the datagrams without an answer; valid after the context."""
        return sorted(set(range(1, self.sent + 1)) - self._answered)

    def plays_on(self) -> None:
        """Wait until twenty more datagrams have been answered."""
        until = len(self._answered) + 20
        eventually(lambda: len(self._answered) >= until, f"{self._session_id} answers")

    def _send(self) -> None:
        while not self._over.wait(_PAUSE):
            try:
                self._socket.send(f"who am I {self.sent + 1}".encode())
            except ConnectionRefusedError:  # ICMP error for an earlier one
                continue
            self.sent += 1

    def _read(self) -> None:
        looks = 0
        while looks < _LOOKS:
            try:
                answer = self._socket.recv(1024).decode()
            except TimeoutError:
                looks += not self._sender.is_alive()
                if looks and not self.lost:
                    return
                continue
            except ConnectionRefusedError:
                continue
            who, _, rest = answer.partition(" ")
            number = rest.rpartition(" ")[2]
            if who == self._session_id and number.isdigit():
                self._answered.add(int(number))
            else:
                self.strangers.append(answer)
