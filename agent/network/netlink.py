"""Encodes and decodes netlink messages and attributes."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator, Sequence

REQUEST = 0x1  # NLM_F_REQUEST
ACK = 0x4  # NLM_F_ACK
DUMP = 0x300  # NLM_F_DUMP
NESTED = 0x8000  # NLA_F_NESTED: the attribute consists of attributes

FAMILY = struct.Struct(">BBH")
"""nfgenmsg, before the attributes of netfilter: address family, version 0, resource."""

ANSWER_SECONDS = 2.0  # Timeout of each answer of the kernel

_NETLINK_NETFILTER = 12
_BATCH_BEGIN = 0x10  # NFNL_MSG_BATCH_BEGIN
_BATCH_END = 0x11
_KIND = 0x3FFF
_ERROR = 2
_DONE = 3
_MESSAGE = struct.Struct("=IHHII")
"""nlmsghdr: length including this header, type, flags, sequence, port id."""
_ATTRIBUTE = struct.Struct("=HH")
_ERRNO = struct.Struct("=i")
_BUFFER = 1 << 16


class Netfilter:
    """A connection to netfilter of this network namespace, opened when it is needed.

    It is kept open: the kernel takes 15 ms to close one just after nftables has removed something.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        """Connect, unless it is; after an error the next call has another connection."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
            self._socket.settimeout(ANSWER_SECONDS)
        try:
            yield self._socket
        except OSError:  # the rest of an answer may still come
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def asked(kernel: socket.socket, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
    """Send one request and yield each message body of the response. Blocks; raises OSError."""
    kernel.send(_encoded(kind, flags, body))
    while True:
        data = kernel.recv(_BUFFER)
        at = 0
        while at < len(data):
            length, kind, *_ = _MESSAGE.unpack_from(data, at)
            body = data[at + _MESSAGE.size : at + length]
            at += _aligned(length)
            if kind in {_ERROR, _DONE}:
                code = -_ERRNO.unpack_from(body)[0]
                if code:
                    raise OSError(code, os.strerror(code))
                return
            yield body


def transact(
    kernel: socket.socket, subsystem: int, requests: Sequence[tuple[int, int, bytes]]
) -> None:
    """Let a subsystem of netfilter carry out all requests or none.

    Each is a kind, flags and a body. Blocks; raises OSError with the first error.
    """
    *others, (kind, flags, body) = requests
    resource = FAMILY.pack(socket.AF_UNSPEC, 0, subsystem)
    batch = [
        (_BATCH_BEGIN, 0, resource),
        *others,
        (kind, flags | ACK, body),
        (_BATCH_END, 0, resource),
    ]
    encoded = [_encoded(*each, sequence=at) for at, each in enumerate(batch)]
    kernel.send(b"".join(encoded))
    error = _error_of_batch(kernel, len(requests))
    if error:
        raise OSError(error, os.strerror(error))


def _error_of_batch(kernel: socket.socket, last: int) -> int:
    """Read the responses to a batch, up to that to its last request; return the first error.

    An error of message 0, which begins the batch, is one of the whole batch.
    """
    first_error = 0
    while True:
        data = kernel.recv(_BUFFER)
        at = 0
        while at < len(data):
            length, _, _, sequence, _ = _MESSAGE.unpack_from(data, at)
            first_error = first_error or -_ERRNO.unpack_from(data, at + _MESSAGE.size)[0]
            if sequence in {0, last}:
                return first_error
            at += _aligned(length)


def attribute(kind: int, value: bytes) -> bytes:
    """Encode an attribute."""
    header = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind)
    return (header + value).ljust(_aligned(_ATTRIBUTE.size + len(value)), b"\0")


def attributes(data: bytes) -> dict[int, bytes]:
    """Decode attributes to bytes by kind; nested ones consist of attributes."""
    return dict(attribute_list(data))


def attribute_list(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Decode attributes, of which several may have the same kind."""
    at = 0
    while at < len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        yield kind & _KIND, data[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)


def _encoded(kind: int, flags: int, body: bytes, sequence: int = 0) -> bytes:
    length = _MESSAGE.size + len(body)
    return _MESSAGE.pack(length, kind, REQUEST | flags, sequence, 0) + body


def _aligned(length: int) -> int:
    return (length + 3) & ~3
