"""Named steps at which a test breaks the agent: `failpoint = "start.created:kill"`."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from agent.host import Reach

START_STEPS = (
    "start.reserved",
    "start.recorded",
    "start.created",
    "start.started",
    "start.saved",
)
CLAIM_STEPS = ("claim.begun", "claim.recorded", "claim.published", "claim.signalled")
RESTART_STEPS = ("restart.started", "restart.saved")
STOP_STEPS = (
    "stop.recorded",
    "stop.killed",
    "end.confirmed",
    "end.saved",
    "log.copied",
    "log.sealed",
    "report.sealed",
)
REMOVAL_STEPS = ("container.removed", "discard.buried")
STEPS = (*START_STEPS, *CLAIM_STEPS, *RESTART_STEPS, *STOP_STEPS, *REMOVAL_STEPS)
"""Every step, in the order in which a session goes through them."""

HANG_SECONDS = 3600.0
BLOCK_SECONDS = 10.0

_ACTIONS = ("kill", "hang", "block", "fail")


async def _go_on(_step: str) -> None:
    return


def failpoint(setting: str) -> Reach:
    """What is called at every named step; nothing happens there without a setting.

    `NAME:kill` ends this process by SIGKILL at the step, `NAME:hang` stays there, `NAME:block`
    holds up the event loop for BLOCK_SECONDS and goes on, `NAME:fail` raises RuntimeError.
    ValueError for anything else.
    """
    if not setting:
        return _go_on
    name, _, action = setting.partition(":")
    if name not in STEPS or action not in _ACTIONS:
        actions, names = ", ".join(_ACTIONS), ", ".join(STEPS)
        raise ValueError(f"failpoint must be NAME:ACTION, with one of {actions}, of {names}")

    async def reach(step: str) -> None:
        if step != name:
            return
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "hang":
            await asyncio.sleep(HANG_SECONDS)
        if action == "block":
            time.sleep(BLOCK_SECONDS)  # noqa: ASYNC251 - as a defect of ours would
            return
        raise RuntimeError(f"failpoint {name}")

    return reach
