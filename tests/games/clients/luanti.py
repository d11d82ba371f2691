"""Luanti (Minetest): the peer id, and the hello that names protocol and ways to log in."""

import struct
import time

from tests.games.clients.network import Played, Ports, datagrams

_PROTOCOL = 0x4F457403
_FIRST_NUMBER = 65_500
_ORIGINAL = 1
_RELIABLE = 3
_SET_PEER_ID = bytes([0, 1])
_INIT = 2
_HELLO = struct.pack(">H", 2)
_PLAYER = b"ann"


def play(host: str, ports: Ports) -> Played:
    with datagrams(host, ports["udp/30000"]) as player:
        question = _header(0, 0) + struct.pack(">BHB", _RELIABLE, _FIRST_NUMBER, _ORIGINAL)
        # An answer: 7 bytes of header, 3 of a reliable packet, and its content.
        answer = player.ask(question, lambda data: data[10:12] == _SET_PEER_ID)
        played = Played(time.monotonic())
        peer = int.from_bytes(answer[12:14], "big")
        message = struct.pack(">HBHHHH", _INIT, 29, 0, 37, 41, len(_PLAYER)) + _PLAYER
        init = _header(peer, 1) + bytes([_ORIGINAL]) + message
        answer = player.ask(init, lambda data: data[10:13] == bytes([_ORIGINAL]) + _HELLO)
        serialization, _, protocol, log_in = struct.unpack(">BHHI", answer[13:22])
        played.facts = {
            "serialization": serialization,
            "protocol": protocol,
            "first login by SRP": bool(log_in & 4),
        }
        played.joined = "hello"
    return played


def _header(peer: int, channel: int) -> bytes:
    return struct.pack(">IHB", _PROTOCOL, peer, channel)
