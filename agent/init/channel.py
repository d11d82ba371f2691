"""The agent's end of the channel to the first process of a container: two FIFOs in a folder.

The agent writes a hand-over to `start`; the init writes reports to `report`, as anything else in
the container may. Opening and reading never block.
"""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.init.messages import MAX_LINE, Report, Reports

FOLDER = ".init"
"""The folder of a channel within the directory that a container sees at /run/tiltyard."""
START = "start"
REPORT = "report"

LOOK_BYTES = 4096
"""Most bytes of reports that are read at once: a container may write more without end."""
KEPT_SECONDS = 30.0  # A session's task follows its program within a second
_FOLDER_MODE = 0o755
_MODES = {START: 0o644, REPORT: 0o666}


def make_channel(folder: Path) -> None:
    """Create the FIFOs of a channel; those that exist stay. Blocks. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    folder.chmod(_FOLDER_MODE)
    for name, mode in _MODES.items():
        path = folder / name
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        path.chmod(mode)


class ReportReader:
    """The reading end of `report`. Of several readers one gets each report."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parser = Reports()
        self._has_writer = True

    def look(self) -> Iterator[Report]:
        """Read reports one by one, LOOK_BYTES in all; those after the last one taken are left."""
        line = bytearray()
        for _ in range(LOOK_BYTES):
            byte = self._read(1)
            line += byte
            if byte == b"\n" or len(line) == MAX_LINE:
                found = self._parser.feed(bytes(line))
                line.clear()
                yield from found
            elif not byte:
                break
        self._parser.feed(bytes(line))  # to be completed later

    def all_reports(self) -> list[Report]:
        """Read all reports of the next LOOK_BYTES."""
        return self._parser.feed(self._read(LOOK_BYTES))

    async def wait(self, seconds: float) -> None:
        """Wait `seconds`, or until something arrives or the last writer leaves."""
        if not self._has_writer:  # the descriptor stays ready until there is another
            await asyncio.sleep(seconds)
            return
        loop = asyncio.get_running_loop()
        await _until_ready(seconds, self._descriptor, loop.add_reader, loop.remove_reader)

    def _read(self, size: int) -> bytes:
        """Read what is there; empty if that is nothing."""
        self._has_writer = True
        try:
            found = os.read(self._descriptor, size)
        except BlockingIOError:
            return b""
        self._has_writer = bool(found)
        return found


@contextlib.contextmanager
def opened_reports(folder: Path) -> Iterator[ReportReader]:
    """Open the reading end of a channel. Raises OSError."""
    with _opened(folder / REPORT, os.O_RDONLY) as descriptor:
        yield ReportReader(descriptor)


class KeptReports:
    """Keeps the reports of inits until a session follows their programs.

    A FIFO loses its contents with its last reader and writer. A program that ends at once would
    take the report of its end with it.
    """

    def __init__(self) -> None:
        self._readers: dict[Path, tuple[contextlib.ExitStack, asyncio.TimerHandle]] = {}

    @contextlib.contextmanager
    def kept(self, folder: Path) -> Iterator[None]:
        """Keep the reports of a channel from now on, for KEPT_SECONDS unless the body fails."""
        self.release(folder)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(opened_reports(folder))
            timer = asyncio.get_running_loop().call_later(KEPT_SECONDS, self.release, folder)
            self._readers[folder] = stack.pop_all(), timer
        try:
            yield
        except BaseException:
            self.release(folder)
            raise

    def release(self, folder: Path) -> None:
        """Keep the reports of a channel no longer: another reader has opened it."""
        if folder in self._readers:
            reader, timer = self._readers.pop(folder)
            timer.cancel()
            reader.close()

    def close(self) -> None:
        """Release all channels."""
        for folder in tuple(self._readers):
            self.release(folder)


async def send(folder: Path, message: bytes, seconds: float) -> None:
    """Write a message to the process that reads `start`.

    Raises:
        BrokenPipeError: No process reads it, or not to its end.
        TimeoutError: It was not read within `seconds`.
        OSError: The FIFO cannot be opened.
    """
    loop = asyncio.get_running_loop()
    with _opened(folder / START, os.O_WRONLY) as descriptor:
        left = memoryview(message)
        async with asyncio.timeout(seconds):
            while left:
                try:
                    left = left[os.write(descriptor, left) :]
                except BlockingIOError:
                    await _until_ready(seconds, descriptor, loop.add_writer, loop.remove_writer)


@contextlib.contextmanager
def _opened(path: Path, access: int) -> Iterator[int]:
    try:
        descriptor = os.open(path, access | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise BrokenPipeError(errno.EPIPE, "no process reads it", str(path)) from None
        raise
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no FIFO", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


async def _until_ready(
    seconds: float,
    descriptor: int,
    watch: Callable[[int, Callable[[], None]], None],
    unwatch: Callable[[int], bool],
) -> None:
    """Wait until a descriptor can be read or written, at most `seconds`."""
    ready = asyncio.Event()
    watch(descriptor, ready.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ready.wait()
    finally:
        unwatch(descriptor)
