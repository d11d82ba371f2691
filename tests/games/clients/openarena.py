"""OpenArena, a Quake III: info, status, and the challenge with which joining begins."""

import time

from tests.games.clients.network import Played, Ports, datagrams

_OUT_OF_BAND = b"\xff\xff\xff\xff"


def play(host: str, ports: Ports) -> Played:
    with datagrams(host, ports["udp/27960"]) as player:

        def ask(question: bytes, answer: bytes) -> bytes:
            expected = _OUT_OF_BAND + answer
            found = player.ask(_OUT_OF_BAND + question, lambda data: data.startswith(expected))
            return found[len(expected) :]

        info = _pairs(ask(b"getinfo tiltyard", b"infoResponse\n"))
        played = Played(time.monotonic())
        rules, *players = (
            ask(b"getstatus tiltyard", b"statusResponse\n").rstrip(b"\n").split(b"\n")
        )
        ask(b"getchallenge 0 Quake3Arena", b"challengeResponse ")
        played.facts = {
            "challenge": info["challenge"],
            "name": info["hostname"],
            "map": info["mapname"],
            "players": len(players),
            "slots": int(info["sv_maxclients"]),
            "version": _pairs(rules)["version"],
        }
    return played


def _pairs(data: bytes) -> dict[str, str]:
    fields = data.decode(errors="replace").strip().removeprefix("\\").split("\\")
    return dict(zip(fields[::2], fields[1::2], strict=True))
