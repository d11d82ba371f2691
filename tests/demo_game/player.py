"""What a player of the demo game does over UDP and TCP, and what the game saves."""

import gzip
import json
import secrets
import socket
import time
from typing import Any

from tests.support.agent.tars import read

_RESEND = 0.02
"""Seconds until an unanswered datagram is sent again: players' clients are this impatient."""
_TCP_RETRY = 0.02
ANSWERS_WITHIN = 15.0  # Seconds within which a game must answer; a bound for what is broken


def udp_round_trip(host: str, port: int, patience: float = ANSWERS_WITHIN) -> float:
    """Send datagrams until the echo of one comes back; return the seconds from the first one.

    Raises TimeoutError when none came back.
    """
    begin = time.monotonic()
    prefix = secrets.token_bytes(16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as player:
        player.connect((host, port))
        player.settimeout(_RESEND)
        number = 0
        while time.monotonic() - begin < patience:
            number += 1
            try:
                player.send(prefix + number.to_bytes(4))
                if player.recv(64).startswith(prefix):
                    return time.monotonic() - begin
            except ConnectionRefusedError:  # an ICMP answer: nothing listens there yet
                time.sleep(_RESEND)
            except TimeoutError:
                continue
    raise TimeoutError(f"no datagram came back from {host}:{port} within {patience:g} s")


def tcp_greeting(host: str, port: int) -> str:
    """Connect and return the line that the game answers, without its end.

    Tries again while nothing listens or a proxy hangs up; raises TimeoutError when that is all.
    """
    deadline = time.monotonic() + ANSWERS_WITHIN
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, port), timeout=ANSWERS_WITHIN) as player:
                line = player.makefile("rb").readline()
        except ConnectionError:
            line = b""
        if line.endswith(b"\n"):
            return line[:-1].decode()
        time.sleep(_TCP_RETRY)
    raise TimeoutError(f"no line came from {host}:{port} within {ANSWERS_WITHIN:g} s")


def saved(archive: bytes) -> Any:
    """Return what the game saved at SIGTERM, from an archive of /data or of the file."""
    [save] = [each for each in read(gzip.decompress(archive)) if each.name.endswith(b"save.json")]
    return json.loads(save.content)
