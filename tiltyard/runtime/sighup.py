"""SIGHUP, which asks for a reload, while there is nothing yet or no more that could reload.

By default it would end the process. It is held back, so that one that comes too early is not lost.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_HANGUP = {signal.SIGHUP}


def hold_back() -> None:
    """Have those wait that come from now on; for the main thread, before there are others."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANGUP)


@contextmanager
def let_in(take: Callable[[], None]) -> Iterator[None]:
    """Have `take` called on the running loop for those that came, and for each that comes."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, take)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANGUP)
    try:
        yield
    finally:
        hold_back()
