"""A socket that receives a bounded number of bytes.

Interim responses (1xx) have no bound in HTTP, and each costs as much as a whole response.
"""

import errno
import socket

from typing_extensions import Buffer

MAX_RECEIVED = 64 * 1024  # Bytes of an answer, with those of TLS
_AT_ONCE = 4096  # Bytes that are parsed in one turn of the event loop


TOO_LONG = errno.EMSGSIZE
"""The `errno` of an answer that is too long; TCP itself does not use it."""


class BoundedSocket(socket.socket):
    """A stream socket that fails after MAX_RECEIVED bytes."""

    _left = MAX_RECEIVED

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Receive as `socket.recv`, at most _AT_ONCE bytes."""
        received = super().recv(self._most(bufsize), flags)
        self._left -= len(received)
        return received

    def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        """Receive as `socket.recv_into`, at most _AT_ONCE bytes."""
        size = memoryview(buffer).nbytes
        received = super().recv_into(buffer, self._most(nbytes or size), flags)
        self._left -= received
        return received

    def _most(self, wanted: int) -> int:
        if self._left <= 0:
            raise OSError(TOO_LONG, "too many bytes")
        return min(wanted, self._left, _AT_ONCE)
