"""Freeciv: a client that joins with its first packet, and starts the game."""

import struct
import time
import zlib

from tests.games.clients.network import Played, Ports, Stream, stream, text_until_null

_JOIN = 4
_JOIN_REPLY = 5
_CHAT = 26
_FIRST_FIELD = 1  # Of the bits for the fields that a packet has
_START = b"/start\0"
_CAPABILITY = "+Freeciv-3.0-network year32 plrculture32 pingfix researchclr cityculture32"
_VERSION = (3, 0, 6)
_LARGE = 0xFFFF  # Announces compressed packets with a length of four bytes
_COMPRESSED = 16 * 1024 + 1
"""Is added to the length of compressed packets that are not large."""


def play(host: str, ports: Ports) -> Played:
    with stream(host, ports["tcp/5556"]) as player:
        names = f"ann\0{_CAPABILITY}\0\0".encode()
        body = names + struct.pack(">III", *_VERSION)
        player.send(struct.pack(">HB", 3 + len(body), _JOIN) + body)
        packets = _packets(player)
        played = Played(time.monotonic())
        reply = _first(packets, _JOIN_REPLY)
        # The first player may give commands, which are lines of the chat.
        player.send(struct.pack(">HHB", 5 + len(_START), _CHAT, _FIRST_FIELD) + _START)
        player.finish()
    accepted = reply[0]
    message, rest = text_until_null(reply[1:])
    if not accepted:
        raise RuntimeError(f"rejected: {message}")
    capability, _ = text_until_null(rest)
    played.facts = {"message": message, "capability": capability.partition(" ")[0]}
    played.joined = "game started"
    return played


def _first(packets: bytes, wanted: int) -> bytes:
    """The content of the first packet of this kind; until the reply, a kind is one byte."""
    while packets:
        size = int.from_bytes(packets[:2], "big")
        if packets[2] == wanted:
            return packets[3:size]
        packets = packets[size:]
    raise RuntimeError(f"no packet {wanted}")


def _packets(player: Stream) -> bytes:
    """Read a packet, or packets that were compressed together."""
    size = player.number(2)
    if size == _LARGE:
        return zlib.decompress(player.read(player.number() - 6))
    if size >= _COMPRESSED:
        return zlib.decompress(player.read(size - _COMPRESSED - 2))
    return struct.pack(">H", size) + player.read(size - 2)
