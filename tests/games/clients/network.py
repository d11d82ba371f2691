"""Sockets with deadlines, and the outcome of a game that was played."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

ANSWERS_WITHIN = 20.0  # Seconds; nexuiz took 1.2 s from binding its port, on a busy machine
_RETRY = 0.25
"""Seconds after which a question is repeated: a server that is ready may not answer yet."""
_LARGEST = 65_536


@dataclass
class Played:
    """What the server reported, and how far the client came."""

    answered: float  # time.monotonic() of the first answer
    facts: dict[str, object] = field(default_factory=dict)
    joined: str = ""  # The last step of joining that the server accepted; empty: only asked


class Datagrams:
    """A connected UDP socket."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect((host, port))

    def close(self) -> None:
        self._socket.close()

    def send(self, datagram: bytes) -> None:
        self._socket.send(datagram)

    def ask(self, question: bytes, is_answer: Callable[[bytes], bool]) -> bytes:
        """Repeat a question until a datagram is its answer; raise TimeoutError without one."""
        deadline = time.monotonic() + ANSWERS_WITHIN
        while time.monotonic() < deadline:
            try:
                self._socket.send(question)
                answer = self._receive(is_answer)
            except ConnectionRefusedError:  # The port is not bound yet
                time.sleep(_RETRY)
                continue
            if answer is not None:
                return answer
        raise TimeoutError(f"no answer to {question[:24]!r} within {ANSWERS_WITHIN:g} s")

    def _receive(self, is_answer: Callable[[bytes], bool]) -> bytes | None:
        """The next answer; None after a while without one."""
        until = time.monotonic() + _RETRY
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                datagram = self._socket.recv(_LARGEST)
            except TimeoutError:
                return None
            if is_answer(datagram):
                return datagram
        return None


@contextmanager
def datagrams(host: str, port: int) -> Iterator[Datagrams]:
    """A UDP socket of a player, which is closed at the end."""
    player = Datagrams(host, port)
    try:
        yield player
    finally:
        player.close()


class Stream:
    """A TCP connection; everything on it has one deadline."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._deadline = time.monotonic() + ANSWERS_WITHIN

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self, size: int) -> bytes:
        """Read exactly this number of bytes; raise EOFError at the end of the stream."""
        data = b""
        while len(data) < size:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{len(data)} of {size} bytes within {ANSWERS_WITHIN:g} s")
            self._socket.settimeout(left)
            received = self._socket.recv(size - len(data))
            if not received:
                raise EOFError(f"the server closed the connection after {data[:80]!r}")
            data += received
        return data

    def finish(self) -> None:
        """Send nothing more, and wait until the server has closed the connection."""
        self._socket.shutdown(socket.SHUT_WR)
        while time.monotonic() < self._deadline and self._socket.recv(_LARGEST):
            pass

    def number(self, size: int = 4) -> int:
        """Read an unsigned number in network byte order."""
        return int.from_bytes(self.read(size), "big")


def connect(host: str, port: int) -> socket.socket:
    """Connect, again while nobody listens yet; raise TimeoutError if that stays so."""
    deadline = time.monotonic() + ANSWERS_WITHIN
    while time.monotonic() < deadline:
        try:
            return socket.create_connection((host, port), timeout=ANSWERS_WITHIN)
        except ConnectionRefusedError:
            time.sleep(_RETRY)
    raise TimeoutError(f"nobody listens on {host}:{port} within {ANSWERS_WITHIN:g} s")


@contextmanager
def stream(host: str, port: int) -> Iterator[Stream]:
    """A TCP connection of a player, which is closed at the end."""
    with connect(host, port) as connected:
        yield Stream(connected)


Ports = Mapping[str, int]
"""The public ports of a session by protocol and container port, such as `udp/8303`."""


def text_until_null(data: bytes) -> tuple[str, bytes]:
    """Split a string that ends with a zero byte from what follows."""
    text, null, rest = data.partition(b"\0")
    if not null:
        raise ValueError(f"no end of the string in {data[:80]!r}")
    return text.decode(errors="replace"), rest
