"""Named steps at which a test breaks a program: `failpoint = "start.created:kill"`."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence

HANG_SECONDS = 3600.0
BLOCK_SECONDS = 10.0

_ACTIONS = ("kill", "hang", "block", "fail")

Reach = Callable[[str], Coroutine[None, None, None]]
"""Called with the name of each step that is reached."""


async def no_failpoint(_step: str) -> None:
    """Do nothing at a step."""


def failpoint(setting: str, steps: Sequence[str]) -> Reach:
    """Make what is called at each of `steps`; it does nothing without a setting.

    `NAME:kill` ends this process by SIGKILL at the step, `NAME:hang` stays there, `NAME:block`
    blocks the event loop for BLOCK_SECONDS and continues, `NAME:fail` raises RuntimeError.

    Raises:
        ValueError: The setting has another form.
    """
    if not setting:
        return no_failpoint
    name, _, action = setting.partition(":")
    if name not in steps or action not in _ACTIONS:
        actions, names = ", ".join(_ACTIONS), ", ".join(steps)
        raise ValueError(f"must be NAME:ACTION, with one of {actions}, of {names}")

    async def reach(step: str) -> None:
        if step != name:
            return
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "hang":
            await asyncio.sleep(HANG_SECONDS)
        if action == "block":
            time.sleep(BLOCK_SECONDS)  # noqa: ASYNC251 - as a bug would
            return
        raise RuntimeError(f"failpoint {name}")

    return reach
