"""Mumble: the ping by UDP, and a user who logs in by TLS until the server has sent its state."""

import ssl
import struct
import time

from tests.games.clients.network import ANSWERS_WITHIN, Played, Ports, Stream, connect, datagrams

_VERSION = 0
_AUTHENTICATE = 2
_REJECT = 4
_SERVER_SYNC = 5
_USER_STATE = 9
_OUR_VERSION = 0x010304
_IDENT = b"tiltyard"


def play(host: str, ports: Ports) -> Played:
    with datagrams(host, ports["udp/64738"]) as player:
        ping = b"\0\0\0\0" + _IDENT
        answer = player.ask(ping, lambda data: data[4:12] == _IDENT)
    played = Played(time.monotonic())
    version, users, slots, _ = struct.unpack(">I8xIII", answer)
    played.facts = {"version": _dotted(version), "players": users, "slots": slots}
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # The server makes its own certificate
    with connect(host, ports["tcp/64738"]) as plain, context.wrap_socket(plain) as connected:
        connected.settimeout(ANSWERS_WITHIN)
        played.facts["users"] = _log_in(Stream(connected))
    played.joined = "state received"
    return played


def _log_in(server: Stream) -> int:
    """Log in without a certificate; return the number of users that the server then reports."""
    _send(server, _VERSION, _number_field(1, _OUR_VERSION))
    _send(server, _AUTHENTICATE, _text_field(1, b"ann"))
    users = 0
    while True:
        kind = server.number(2)
        message = server.read(server.number(4))
        if kind == _REJECT:
            raise RuntimeError(f"rejected: {message!r}")
        if kind == _SERVER_SYNC:
            return users
        users += kind == _USER_STATE


def _send(server: Stream, kind: int, message: bytes) -> None:
    server.send(struct.pack(">HI", kind, len(message)) + message)


def _number_field(field: int, value: int) -> bytes:
    """A field of a Protocol Buffers message of the type uint32."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([field << 3, *encoded, value])


def _text_field(field: int, text: bytes) -> bytes:
    """A field of a Protocol Buffers message that is a short string."""
    return bytes([field << 3 | 2, len(text)]) + text


def _dotted(version: int) -> str:
    return ".".join(str(part) for part in version.to_bytes(4, "big")[1:])
