"""Encodes and decodes netlink messages and attributes."""

import os
import socket
import struct
from collections.abc import Iterator

REQUEST = 0x1  # NLM_F_REQUEST
ACK = 0x4  # NLM_F_ACK
DUMP = 0x300  # NLM_F_DUMP
NESTED = 0x8000  # NLA_F_NESTED: the attribute consists of attributes

_KIND = 0x3FFF
_ERROR = 2
_DONE = 3
_MESSAGE = struct.Struct("=IHHII")
"""nlmsghdr: length including this header, type, flags, sequence, port id."""
_ATTRIBUTE = struct.Struct("=HH")
_ERRNO = struct.Struct("=i")
_BUFFER = 1 << 16


def asked(kernel: socket.socket, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
    """Send one request and yield each message body of the response. Blocks; raises OSError."""
    header = _MESSAGE.pack(_MESSAGE.size + len(body), kind, REQUEST | flags, 0, 0)
    kernel.send(header + body)
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


def attribute(kind: int, value: bytes) -> bytes:
    """Encode an attribute."""
    header = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind)
    return (header + value).ljust(_aligned(_ATTRIBUTE.size + len(value)), b"\0")


def attributes(data: bytes) -> dict[int, bytes]:
    """Decode attributes to bytes by kind; nested ones consist of attributes."""
    found = {}
    while data:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind & _KIND] = data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3
