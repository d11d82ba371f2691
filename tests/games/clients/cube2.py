"""Cube 2 (Sauerbraten): the info port, which is the game's port + 1."""

import time
from collections.abc import Iterator

from tests.games.clients.network import Played, Ports, datagrams

_QUESTION = b"\x01"
_SHORT = 0x80  # Announces a number of two bytes, little-endian
_LONG = 0x81  # Announces a number of four bytes


def play(host: str, ports: Ports) -> Played:
    with datagrams(host, ports["udp/28786"]) as player:
        answer = player.ask(_QUESTION, lambda data: data.startswith(_QUESTION))
    played = Played(time.monotonic())
    numbers = _Numbers(answer[len(_QUESTION) :])
    players = numbers.next()
    attributes = [numbers.next() for _ in range(numbers.next())]
    played.facts = {
        "players": players,
        "protocol": attributes[0],
        "slots": attributes[3],
        "map": numbers.text(),
        "name": numbers.text(),
    }
    return played


class _Numbers:
    """Reads numbers of one byte or more, and strings of such numbers that end with 0."""

    def __init__(self, data: bytes) -> None:
        self._data: Iterator[int] = iter(data)

    def next(self) -> int:
        first = next(self._data)
        size = {_SHORT: 2, _LONG: 4}.get(first)
        if size is None:
            return first
        return int.from_bytes(bytes(next(self._data) for _ in range(size)), "little")

    def text(self) -> str:
        letters = []
        while letter := self.next():
            letters.append(chr(letter))
        return "".join(letters)
