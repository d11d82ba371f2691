"""Detect programs that init could not execute: it exits with 126 or 127 and logs the cause."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from agent.domain.engine import Container, ContainerStatus

_PROC = Path("/proc")
_STEP_SECONDS = 0.001
_BEGIN_SECONDS = 1.0
"""A program that takes longer to begin is slow, not missing."""
_NOTICE_SECONDS = 2.0
"""Time for the engine to notice the end of init; usually 0.1 s."""
_INIT_REFUSES = frozenset({126, 127})
_EXEC_FAILED = re.compile(rb"\[FATAL tini \(\d+\)\] exec (?P<cause>[^\r\n]+)")


def why_not_run(
    init: int | None, inspect: Callable[[], Container], log_end: Callable[[], bytes]
) -> str | None:
    """Return why a container's program could not be started; None if it was. Blocks.

    `init`: the pid of the engine's init, None if it has ended.
    """
    if init is not None and _began(init):
        return None
    give_up = time.monotonic() + _NOTICE_SECONDS
    while (found := inspect()).status is ContainerStatus.RUNNING and time.monotonic() < give_up:
        time.sleep(_STEP_SECONDS)
    if found.exit_code not in _INIT_REFUSES:
        return None
    failure = _EXEC_FAILED.search(log_end())
    return failure["cause"].decode(errors="replace") if failure else None


def _began(init: int) -> bool:
    """Wait until init's child has executed the program, which changes its name."""
    give_up = time.monotonic() + _BEGIN_SECONDS
    while time.monotonic() < give_up:
        try:
            children = (_PROC / str(init) / "task" / str(init) / "children").read_text().split()
            name, *others = ((_PROC / pid / "comm").read_text() for pid in (str(init), *children))
            if any(other != name for other in others):
                return True
        except (FileNotFoundError, ProcessLookupError):
            if not (_PROC / str(init)).exists():
                return False
        time.sleep(_STEP_SECONDS)
    return True
