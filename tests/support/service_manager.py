"""A service manager that listens."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager


class Manager:
    """What services tell, and the address that they are told to tell it at."""

    def __init__(self, address: str, heard: socket.socket) -> None:
        self.address = address
        self._heard = heard

    def heard(self) -> list[str]:
        """What came since it was last asked for."""
        found = []
        while True:
            try:
                found.append(self._heard.recv(1024).decode())
            except BlockingIOError:
                return found

    async def next(self) -> str:
        """What comes next."""
        async with asyncio.timeout(50):
            return (await asyncio.get_running_loop().sock_recv(self._heard, 1024)).decode()


@contextmanager
def a_manager(address: str) -> Iterator[Manager]:
    """Listen at a path, or at a name in the kernel, which begins with @."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("\0" + address[1:] if address.startswith("@") else address)
        heard.setblocking(False)
        yield Manager(address, heard)
