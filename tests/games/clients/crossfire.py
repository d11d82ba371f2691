"""Crossfire: the versions, the setup, and an account, which has no characters yet."""

import time

from tests.games.clients.network import Played, Ports, Stream, stream

_ACCOUNT = b"ann"
_PASSWORD = b"tiltyard"


def play(host: str, ports: Ports) -> Played:
    with stream(host, ports["tcp/13327"]) as player:
        greeting = _receive(player, b"version ")
        played = Played(time.monotonic())
        server_version, client_version, name = greeting.decode().strip().split(" ", 2)
        played.facts = {"name": name, "version": server_version, "clients": client_version}
        _send(player, b"version 1023 1029 tiltyard")
        _send(player, b"setup loginmethod 2")
        if _receive(player, b"setup ") != b"loginmethod 2":
            raise RuntimeError("the server has no accounts")
        _send(player, b"accountnew " + _with_size(_ACCOUNT) + _with_size(_PASSWORD))
        _receive(player, b"accountplayers ")
        played.joined = "account"
    return played


def _with_size(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _send(player: Stream, command: bytes) -> None:
    player.send(len(command).to_bytes(2, "big") + command)


def _receive(player: Stream, wanted: bytes) -> bytes:
    """Read messages until one begins so; return what follows."""
    while True:
        message = player.read(player.number(2))
        if message.startswith(wanted):
            return message[len(wanted) :]
        if message.startswith(b"failure "):
            raise RuntimeError(f"rejected: {message!r}")
