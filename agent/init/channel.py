"""The agent's end of the channel to the init of a container: two FIFOs in a folder.

The agent writes a hand-over to `start`; the init writes lines to `report`. A container may write
anything to `report`, so its lines are bounded, and only hints beside the name of its process.
Descriptors never block: opening a FIFO in this mode waits for nobody.
"""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

START = "start"
REPORT = "report"
FOLDER = ".init"
"""The folder of a channel within the directory that a container sees at /run/tiltyard."""

LINE_BYTES = 64  # Longest line with its end
LOOK_BYTES = 4096  # Most bytes of reports that are read at once
_FOLDER_MODE = 0o755
_MODES = {START: 0o644, REPORT: 0o666}


def make_channel(folder: Path) -> None:
    """Create the FIFOs of a channel; no-op for those that exist. Blocks."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    folder.chmod(_FOLDER_MODE)
    for name, mode in _MODES.items():
        with contextlib.suppress(FileExistsError):
            os.mkfifo(folder / name)
        (folder / name).chmod(mode)


class Reports:
    """The reading end of `report`. Each line is read once, by whoever reads first."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._line = bytearray()
        self.has_writer = True
        """False if the last read found that no process can write."""

    def next_line(self) -> bytes | None:
        """Return the next line without its end, and leave the rest; None if there is no whole one.

        A line of more than LINE_BYTES is cut.
        """
        for _ in range(LOOK_BYTES):
            byte = self._read(1)
            if byte == b"\n":
                line = bytes(self._line)
                self._line.clear()
                return line
            if not byte:
                return None
            if len(self._line) < LINE_BYTES:
                self._line += byte
        return None

    def all_lines(self) -> list[bytes]:
        """Return the lines that are there, of up to LOOK_BYTES."""
        return self._read(LOOK_BYTES).splitlines()

    async def wait(self, seconds: float) -> None:
        """Wait `seconds`, or until a line arrives or the last writer leaves."""
        if not self.has_writer:  # the descriptor stays ready from then on
            await asyncio.sleep(seconds)
            return
        loop = asyncio.get_running_loop()
        await _until(seconds, self._descriptor, loop.add_reader, loop.remove_reader)

    def _read(self, size: int) -> bytes:
        """Read what is there; empty if that is nothing."""
        try:
            found = os.read(self._descriptor, size)
        except BlockingIOError:
            found = b""
            self.has_writer = True
        else:
            self.has_writer = bool(found)
        return found


@contextlib.contextmanager
def opened_reports(folder: Path) -> Iterator[Reports]:
    """Open the reading end of a channel. Raises OSError."""
    with _opened(folder / REPORT, os.O_RDONLY) as descriptor:
        yield Reports(descriptor)


async def send(folder: Path, message: bytes, seconds: float) -> None:
    """Write a hand-over to an init that reads.

    Raises BrokenPipeError if no process reads to its end, TimeoutError after `seconds`, OSError.
    """
    loop = asyncio.get_running_loop()
    with _opened(folder / START, os.O_WRONLY) as descriptor:
        left = memoryview(message)
        async with asyncio.timeout(seconds):
            while left:
                try:
                    left = left[os.write(descriptor, left) :]
                except BlockingIOError:
                    await _until(seconds, descriptor, loop.add_writer, loop.remove_writer)


@contextlib.contextmanager
def _opened(path: Path, access: int) -> Iterator[int]:
    try:
        descriptor = os.open(path, access | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no process reads the FIFO
            raise BrokenPipeError(error.errno, error.strerror, path) from None
        raise
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no FIFO", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


async def _until(
    seconds: float,
    descriptor: int,
    add: Callable[..., None],
    remove: Callable[[int], bool],
) -> None:
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ready.wait()
    finally:
        remove(descriptor)
