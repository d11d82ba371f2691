"""Detect programs that init could not execute: it exits with 126 or 127 and logs the cause."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from agent.docker.wording import Meaning, parts_of
from agent.domain.engine import Container
from agent.domain.session import Process
from agent.kernel.processes import live_process

_PROC = Path("/proc")
_STEP_SECONDS = 0.001
_BEGIN_SECONDS = 1.0  # A program that takes longer to begin is slow, not missing
_NOTICE_TRIES = 200
_NOTICE_SECONDS = 0.01
"""2 s for the engine to notice the end of init; usually 0.1 s."""
_INIT_REFUSES = frozenset({126, 127})


async def why_not_run(
    inspect: Callable[[], Awaitable[Container]], log_end: Callable[[], Awaitable[bytes]]
) -> str | None:
    """Return why a container's program has not begun; None if it ended by itself."""
    for _ in range(_NOTICE_TRIES):
        found = await inspect()
        if not found.is_running:
            break
        await asyncio.sleep(_NOTICE_SECONDS)
    if found.exit_code not in _INIT_REFUSES:
        return None
    failure = parts_of(Meaning.EXEC_FAILED, (await log_end()).decode(errors="replace"))
    return failure["cause"] if failure else None


def begun(init: int) -> Process | None:
    """Wait until init's child has executed the program, which changes its name. Blocks.

    Returns init, or None if it has ended.
    """
    give_up = time.monotonic() + _BEGIN_SECONDS
    while time.monotonic() < give_up:
        try:
            children = (_PROC / str(init) / "task" / str(init) / "children").read_text().split()
            name, *others = ((_PROC / pid / "comm").read_text() for pid in (str(init), *children))
            if any(other != name for other in others):
                break
        except (FileNotFoundError, ProcessLookupError):
            if not (_PROC / str(init)).exists():
                return None
        time.sleep(_STEP_SECONDS)
    return live_process(init)
