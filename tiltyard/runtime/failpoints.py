"""Fault injection at named steps, for tests: `failpoint = "start.created:kill"`."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence

HANG_SECONDS = 3600.0
BLOCK_SECONDS = 10.0

_ACTIONS = ("kill", "hang", "block", "fail")

Reach = Callable[[str], Coroutine[None, None, None]]  # Called with the name of each step


async def no_failpoint(_step: str) -> None:
    """Do nothing."""


def failpoint(setting: str, steps: Sequence[str]) -> Reach:
    """Parse the setting and return the function to call at each of `steps`.

    `NAME:kill` ends this process by SIGKILL at the step, `NAME:hang` hangs there, `NAME:block`
    blocks the event loop for BLOCK_SECONDS and continues, `NAME:fail` raises RuntimeError.

    Raises:
        ValueError: Invalid setting.
    """
    if not setting:
        return no_failpoint
    name, _, action = setting.partition(":")
    if name not in steps or action not in _ACTIONS:
        actions = ", ".join(_ACTIONS)
        names = ", ".join(steps)
        raise ValueError(f"must be NAME:ACTION, with one of {actions}, of {names}")

    async def reach(step: str) -> None:
        if step != name:
            return
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "hang":
            await asyncio.sleep(HANG_SECONDS)
        if action == "block":
            time.sleep(BLOCK_SECONDS)  # noqa: ASYNC251 - blocks on purpose
            return
        raise RuntimeError(f"failpoint {name}")

    return reach
