"""A fake service manager for sd_notify."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager


class Manager:
    """The messages of services, and the address that they notify."""

    def __init__(self, address: str, listener: socket.socket) -> None:
        self.address = address
        self._socket = listener

    def received(self) -> list[str]:
        """The messages since the last call."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(1024).decode())
            except BlockingIOError:
                return found

    async def next(self) -> str:
        """The next message."""
        async with asyncio.timeout(50):
            return (await asyncio.get_running_loop().sock_recv(self._socket, 1024)).decode()


@contextmanager
def a_manager(address: str) -> Iterator[Manager]:
    """Listen at a path, or at an abstract name, which begins with @."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + address[1:] if address.startswith("@") else address)
        listener.setblocking(False)
        yield Manager(address, listener)
