"""A time server (NTP, RFC 5905) that has this machine's time."""

import socketserver
import struct
import threading
import time
from typing import Self

_PORT = 123
_SINCE_1900 = 2_208_988_800  # Seconds from the era of NTP to that of Unix
_SERVER_OF_VERSION_4 = 0x24
_FIRST_STRATUM = 1
_MICROSECONDS = -20


class TimeServer:
    """Answers at an address within the context."""

    def __init__(self, address: str) -> None:
        self._server = socketserver.UDPServer((address, _PORT), _Answer)
        self._thread = threading.Thread(target=self._server.serve_forever, name="time server")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Answer(socketserver.DatagramRequestHandler):
    def handle(self) -> None:
        sent = self.rfile.read(48)[40:]
        now = int((time.time() + _SINCE_1900) * 2**32)
        head = (_SERVER_OF_VERSION_4, _FIRST_STRATUM, 0, _MICROSECONDS, 0, 0, b"TEST")
        self.wfile.write(struct.pack("!BBbbII4sQ8sQQ", *head, now, sent, now, now))
