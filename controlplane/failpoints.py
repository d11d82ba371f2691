"""Named steps at which a test breaks the control plane: `failpoint = "start.answered:kill"`."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine

START_STEPS = ("start.reserved", "start.attempted", "start.answered", "start.confirmed")
CLAIM_STEPS = ("claim.attempted", "claim.answered", "claim.confirmed")
STOP_STEPS = ("stop.requested", "stop.answered", "stop.written")
TAG_STEPS = ("tag.resolved", "tag.enabled")
TOKEN_STEPS = ("token.made", "token.revoked")
PLAYER_STEPS = ("players.joined", "players.left")
AUTHORITY_STEPS = (
    "authority.rotated",
    "authority.installed",
    "authority.moved",
    "authority.dropped",
    "authority.finished",
)
STEPS = (
    *(*START_STEPS, *CLAIM_STEPS, *STOP_STEPS, *TAG_STEPS, *TOKEN_STEPS, *PLAYER_STEPS),
    *AUTHORITY_STEPS,
)
"""Every step behind which something was committed, or answered by another part."""

HANG_SECONDS = 3600.0

Reach = Callable[[str], Coroutine[None, None, None]]


async def go_on(_step: str) -> None:
    """Do nothing at a step."""


def failpoint(setting: str) -> Reach:
    """Make what is called at every named step; nothing happens there without a setting.

    `NAME:kill` ends this process by SIGKILL at the step, `NAME:hang` stays there.

    Raises:
        ValueError: The setting has another form.
    """
    if not setting:
        return go_on
    name, _, action = setting.partition(":")
    if name not in STEPS or action not in {"kill", "hang"}:
        raise ValueError(f"must be NAME:kill or NAME:hang, of {', '.join(STEPS)}")

    async def reach(step: str) -> None:
        if step != name:
            return
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(HANG_SECONDS)

    return reach
