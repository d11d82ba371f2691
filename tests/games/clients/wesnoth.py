"""Wesnoth: the handshake, the version, a login, and the lobby with its users and games."""

import gzip
import re
import struct
import time

from tests.games.clients.network import Played, Ports, Stream, stream

_WITHOUT_TLS = struct.pack(">I", 0)
_VERSION = "1.16.9"
_KEY = r'\b{}="([^"]*)"'


def play(host: str, ports: Ports) -> Played:
    with stream(host, ports["tcp/15000"]) as player:
        player.send(_WITHOUT_TLS)
        player.number()
        played = Played(time.monotonic())
        _expect(player, "version")
        _send(player, f'[version]\nversion="{_VERSION}"\n[/version]\n')
        _expect(player, "mustlogin")
        _send(player, '[login]\nusername="ann"\n[/login]\n')
        _expect(player, "join_lobby")
        lobby = _expect(player, "gamelist")
        players = re.findall(_KEY.format("name"), lobby.partition("[user]")[2])
        played.facts = {"version": _VERSION, "players": len(players)}
        played.joined = "lobby"
    return played


def _send(player: Stream, document: str) -> None:
    data = gzip.compress(document.encode())
    player.send(struct.pack(">I", len(data)) + data)


def _expect(player: Stream, tag: str) -> str:
    """Read documents until one begins with this tag; return it."""
    while True:
        document = gzip.decompress(player.read(player.number())).decode()
        if document.startswith(f"[{tag}]"):
            return document
        if document.startswith(("[error]", "[reject]")):
            raise RuntimeError(f"rejected: {document}")
