"""The number of bytes that work reads."""

from collections.abc import Awaitable, Callable
from pathlib import Path

TRIES = 5  # Threads of other tests may read beside some of them


async def bytes_read(work: Callable[[], Awaitable[object]]) -> int:
    """Return the fewest bytes that all threads of this process have read in one of some tries."""
    return min([await _read_during(work) for _ in range(TRIES)])


async def _read_during(work: Callable[[], Awaitable[object]]) -> int:
    before = _read_so_far()
    await work()
    return _read_so_far() - before


def _read_so_far() -> int:
    [line] = [each for each in Path("/proc/self/io").read_text().splitlines() if "rchar" in each]
    return int(line.split()[1])
