"""A player who keeps asking one port, from one address, for its own address."""

import socket
import threading
import time
from typing import Self

from tests.docker.stack import eventually
from tiltyard.agent.v1 import agent_pb2 as pb

RESEND = 0.01
MORE = 20  # Datagrams or answers that show that a player goes on
_LATE = 10.0  # Seconds after the last datagram in which an answer may still come


class SteadyPlayer:
    """Sends numbered datagrams to a session of the demo game within the context."""

    def __init__(self, host: str, port: int, own_address: str = "") -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((own_address, 0))
        self._socket.settimeout(RESEND)
        self._to = (host, port)
        self.sent = 0
        # A list: the thread appends while a test goes through it.
        self._answers: list[tuple[int, str, str]] = []
        self._answered = time.monotonic()
        self.longest_gap = 0.0  # The most seconds from one answer to the next
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="player")
        self.address = "{}:{}".format(*self._socket.getsockname())

    def __enter__(self) -> Self:
        self._answered = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def stop(self) -> None:
        """Send no more, and wait for late answers."""
        self._over.set()
        self._thread.join()
        deadline = time.monotonic() + _LATE
        while self.lost and time.monotonic() < deadline:
            self._receive()

    @property
    def lost(self) -> list[int]:
        """Numbers of the datagrams without an answer."""
        return sorted({*range(1, self.sent + 1)} - {number for number, _, _ in self._answers})

    @property
    def answered_by(self) -> set[str]:
        """The ids of the sessions that answered."""
        return {who for _, who, _ in self._answers}

    def answers_from(self, who: str) -> int:
        """The number of answers of the game with this session id."""
        return sum(session_id == who for _, session_id, _ in self._answers)

    def seen_as(self, session: pb.Session) -> str:
        """The player's address as the session sees it for a datagram sent from now on."""
        after = self.sent
        session_id = session.internal_id
        found: list[str] = []

        def answered() -> bool:
            found[:] = [
                address
                for number, who, address in self._answers
                if number > after and who == session_id
            ]
            return bool(found)

        eventually(answered, f"{session_id} answers")
        return found[0]

    def wait_for_more_answers(self, who: str) -> None:
        until = self.answers_from(who) + MORE
        eventually(lambda: self.answers_from(who) >= until, f"{who} answers")

    def wait_for_more_datagrams(self) -> None:
        until = self.sent + MORE
        eventually(lambda: self.sent >= until, "the player sends")

    def _go_on(self) -> None:
        while not self._over.is_set():
            self.sent += 1
            self._socket.sendto(f"who am I {self.sent}".encode(), self._to)
            if self._receive():
                time.sleep(RESEND)

    def _receive(self) -> bool:
        """Take one answer, if it comes in time."""
        try:
            who, address, answered = self._socket.recv(1024).decode().split()
        except TimeoutError:
            return False
        self._answers.append((int(answered), who, address))
        now = time.monotonic()
        self.longest_gap = max(self.longest_gap, now - self._answered)
        self._answered = now
        return True
