"""A disk that loses at a power cut what it was not asked to flush, served by NBD.

`python -m tests.host.disk SOCKET FILE` serves a file to one client at a time. Writes are kept in
memory until the client flushes. If it goes without saying so, as one killed does, they are lost.
"""

import os
import socket
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click

_SECTOR = 512
_OPTION = 0x49484156454F5054
_REPLY = 0x3E889045565A9
_REQUEST = 0x25609513
_ANSWER = 0x67446698
_FIXED_NEWSTYLE_WITHOUT_ZEROES = 3
_GO = 7
_ACK = 1
_INFO = 3
_UNSUPPORTED = 2**31 + 1
_EXPORT = 0
_HAS_FLAGS = 1
_SENDS_FLUSH = 4
_SENDS_FUA = 8
_READ = 0
_WRITE = 1
_DISCONNECT = 2
_FLUSH = 3
_FUA = 1
_EINVAL = 22


@dataclass
class Disk:
    """A file, and the sectors that were written and not flushed."""

    file: int  # A file descriptor
    pending: dict[int, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return os.fstat(self.file).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Return what was written last, flushed or not."""
        data = bytearray(os.pread(self.file, length, offset))
        if self.pending:
            for begin in range(0, length, _SECTOR):
                sector = self.pending.get((offset + begin) // _SECTOR)
                if sector is not None:
                    data[begin : begin + _SECTOR] = sector
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        """Write whole sectors, which are lost unless they are flushed."""
        for begin in range(0, len(data), _SECTOR):
            self.pending[(offset + begin) // _SECTOR] = data[begin : begin + _SECTOR]

    def write_through(self, offset: int, data: bytes) -> None:
        """Write whole sectors that are not lost; others stay as they are."""
        os.pwrite(self.file, data, offset)
        for begin in range(0, len(data), _SECTOR):
            self.pending.pop((offset + begin) // _SECTOR, None)

    def flush(self) -> None:
        """Have everything that was written outlive a power cut."""
        for number, sector in self.pending.items():
            os.pwrite(self.file, sector, number * _SECTOR)
        self.pending.clear()

    def cut_power(self) -> int:
        """Lose what was not flushed; return the number of sectors."""
        lost = len(self.pending)
        self.pending.clear()
        return lost


class _GoneError(Exception):
    """The client is gone."""


class _Connection:
    """A client, from its handshake to its end."""

    def __init__(self, client: socket.socket, disk: Disk) -> None:
        self._client = client
        self._disk = disk

    def negotiate(self) -> None:
        """Agree on the only export there is."""
        self._client.sendall(
            b"NBDMAGICIHAVEOPT" + struct.pack(">H", _FIXED_NEWSTYLE_WITHOUT_ZEROES)
        )
        self._receive(4)
        while True:
            magic, option, length = struct.unpack(">QII", self._receive(16))
            assert magic == _OPTION, hex(magic)
            self._receive(length)
            if option == _GO:
                flags = _HAS_FLAGS | _SENDS_FLUSH | _SENDS_FUA
                self._reply(option, _INFO, struct.pack(">HQH", _EXPORT, self._disk.size, flags))
                self._reply(option, _ACK)
                return
            self._reply(option, _UNSUPPORTED)

    def serve(self) -> None:
        """Serve requests until the client disconnects."""
        while True:
            magic, flags, kind, handle, offset, length = struct.unpack(
                ">IHHQQI", self._receive(28)
            )
            assert magic == _REQUEST, hex(magic)
            error = 0
            data = b""
            if kind == _READ:
                data = self._disk.read(offset, length)
            elif kind == _WRITE:
                written = self._receive(length)
                if flags & _FUA:
                    self._disk.write_through(offset, written)
                else:
                    self._disk.write(offset, written)
            elif kind == _FLUSH:
                self._disk.flush()
            elif kind == _DISCONNECT:
                self._disk.flush()
                return
            else:
                error = _EINVAL
            self._client.sendall(struct.pack(">IIQ", _ANSWER, error, handle) + data)

    def _reply(self, option: int, kind: int, data: bytes = b"") -> None:
        self._client.sendall(struct.pack(">QIII", _REPLY, option, kind, len(data)) + data)

    def _receive(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = self._client.recv(length - len(data))
            if not part:
                raise _GoneError
            data += part
        return bytes(data)


def serve(path: Path, file: Path) -> None:
    """Serve one client after the other, without end."""
    disk = Disk(os.open(file, os.O_RDWR))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        while True:
            client, _ = listener.accept()
            with client:
                connection = _Connection(client, disk)
                try:
                    connection.negotiate()
                    connection.serve()
                except (_GoneError, ConnectionError):
                    click.echo(f"{disk.cut_power()} sectors were not flushed and are lost")


if __name__ == "__main__":
    serve(*map(Path, sys.argv[1:]))
