"""OpenTTD: the game's info by TCP, and joining until the server welcomes a spectator."""

import struct
import time

from tests.games.clients.network import Played, Ports, Stream, stream, text_until_null

_JOIN = 2
_GAME_INFO = 6
_ASK_GAME_INFO = 7
_WELCOME = 14
_VERSION = b"13.0"
_SETS_VERSION = 13 + 16 << 24 | 1 << 19 | 28_004
"""The version 13.0, a release, as the sets of graphics are written for it."""


def play(host: str, ports: Ports) -> Played:
    with stream(host, ports["tcp/3979"]) as player:
        _send(player, _ASK_GAME_INFO)
        info = _receive(player, _GAME_INFO)
        played = Played(time.monotonic())
    played.facts = _read_info(info)
    with stream(host, ports["tcp/3979"]) as player:
        _send(player, _JOIN, _join())
        _receive(player, _WELCOME)
    played.joined = "welcome"
    return played


def _join() -> bytes:
    """The client's versions and name, and its company: none, as a spectator."""
    return _VERSION + b"\0" + struct.pack("<I", _SETS_VERSION) + b"ann\0\xff"


def _read_info(info: bytes) -> dict[str, object]:
    """Read the sixth version of the info, of a game without a script and sets."""
    _, rest = text_until_null(info[6:])  # Two versions, and that of the script and its name
    sets = rest[0]
    # The date, the first date, companies that can be and are there, clients that can be there
    companies = rest[10]
    name, rest = text_until_null(rest[12:])
    version, rest = text_until_null(rest)
    slots, clients, _, width, height = struct.unpack("<BBBHH", rest[1:8])
    return {
        "name": name,
        "version": version,
        "companies": companies,
        "players": clients,
        "slots": slots,
        "map": f"{width} x {height}",
        "sets": sets,
    }


def _send(player: Stream, kind: int, data: bytes = b"") -> None:
    player.send(struct.pack("<HB", 3 + len(data), kind) + data)


def _receive(player: Stream, wanted: int) -> bytes:
    size = int.from_bytes(player.read(2), "little")
    kind = player.number(1)
    data = player.read(size - 3)
    if kind != wanted:
        raise RuntimeError(f"packet {kind} instead of {wanted}: {data!r}")
    return data
