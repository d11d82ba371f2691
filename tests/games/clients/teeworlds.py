"""Teeworlds 0.7: token, server info, and joining until the server calls the player ready."""

import time

from tests.games.clients.network import Datagrams, Played, Ports, datagrams, text_until_null

_NO_TOKEN = b"\xff\xff\xff\xff"
_MINE = b"tilt"
_CONTROL = 0x04  # Flags of a packet, shifted as in its first byte
_CONNLESS = 0x21  # The flag, and version 1
_TOKEN = b"\x05"
_CONNECT = b"\x01"
_ACCEPT = b"\x02"
_PADDED = 512  # A first packet is as large as an answer, so that nobody uses it to amplify
_VERSION = b"0.7 802f1be60a05665f\0"
_INFO = bytes([1 << 1 | 1])  # System messages have the lowest bit
_READY = bytes([18 << 1 | 1])


def play(host: str, ports: Ports) -> Played:
    with datagrams(host, ports["udp/8303"]) as player:
        token = _ask_token(player)
        played = Played(time.monotonic())
        played.facts = _info(player, token)
        _join(player, token)
        played.facts["players"] = _info(player, token)["players"]
        played.joined = "player is ready"
    return played


def _ask_token(player: Datagrams) -> bytes:
    question = _control(_NO_TOKEN, _TOKEN)
    answer = player.ask(question, lambda data: data[3:8] == _MINE + _TOKEN)
    return answer[8:12]


def _info(player: Datagrams, token: bytes) -> dict[str, object]:
    question = bytes([_CONNLESS]) + token + _MINE + b"\xff\xff\xff\xffgie3\x01"
    answer = player.ask(question, lambda data: data[9:17] == b"\xff\xff\xff\xffinf3")
    rest = answer[18:]  # The number of the question takes a byte
    found: dict[str, object] = {}
    for name in ("version", "name", "hostname", "map", "mode"):
        found[name], rest = text_until_null(rest)
    # Flags, skill level, players, slots, clients, slots of clients: a byte each below 64
    found["players"] = rest[4]
    found["slots"] = rest[5]
    return found


def _join(player: Datagrams, token: bytes) -> None:
    """Connect, and report the client's version and that the map is loaded."""
    player.ask(_control(token, _CONNECT), lambda data: data[3:8] == _MINE + _ACCEPT)
    chunks = _chunk(1, _INFO + _VERSION + b"\0\0") + _chunk(2, _READY)
    header = bytes([0, 0, 2]) + token
    # The header of an answer acknowledges the last chunk; the rest may be compressed.
    player.ask(header + chunks, lambda data: data[0] & 0x24 == 0 and data[1] == 2)


def _control(token: bytes, message: bytes) -> bytes:
    return bytes([_CONTROL, 0, 0]) + token + (message + _MINE).ljust(_PADDED, b"\0")


def _chunk(number: int, message: bytes) -> bytes:
    """A chunk that the server must acknowledge."""
    size = len(message)
    return bytes([0x40 | size >> 6, size & 0x3F, number]) + message
