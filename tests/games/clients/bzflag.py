"""BZFlag: the greeting, the game, and a tank that is accepted."""

import struct
import time

from tests.games.clients.network import Played, Ports, Stream, stream

_QUERY_GAME = b"qg"
_ENTER = b"en"
_ACCEPT = b"ac"
_REJECT = b"rj"
_AUTOMATIC_TEAM = -2


def play(host: str, ports: Ports) -> Played:
    with stream(host, ports["tcp/5154"]) as player:
        player.send(b"BZFLAG\r\n\r\n")
        version = player.read(8).decode()
        played = Played(time.monotonic())
        player.read(1)  # The player's number
        _send(player, _QUERY_GAME)
        numbers = struct.unpack(">17H", _receive(player, _QUERY_GAME)[:34])
        played.facts = {"version": version, "slots": numbers[2], "players": sum(numbers[4:10])}
        tank = struct.pack(">Hh32s128s22s60s", 0, _AUTOMATIC_TEAM, b"ann", b"", b"", b"tiltyard")
        _send(player, _ENTER, tank)
        _receive(player, _ACCEPT)
        played.joined = "accepted"
    return played


def _send(player: Stream, code: bytes, data: bytes = b"") -> None:
    player.send(struct.pack(">H", len(data)) + code + data)


def _receive(player: Stream, wanted: bytes) -> bytes:
    """Read messages until this one; raise RuntimeError if the player is rejected."""
    while True:
        size = player.number(2)
        code = player.read(2)
        data = player.read(size)
        if code == _REJECT:
            raise RuntimeError(f"rejected: {data!r}")
        if code == wanted:
            return data
