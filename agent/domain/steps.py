"""Failpoints of the agent (`tiltyard.runtime.failpoints`)."""

START_STEPS = (
    "start.reserved",
    "start.recorded",
    "start.created",
    "start.waiting",
    "start.saved",
    "start.handed",
)
CLAIM_STEPS = ("claim.begun", "claim.recorded", "claim.published", "claim.signalled")
RESTART_STEPS = ("restart.waiting", "restart.saved", "restart.handed")
STOP_STEPS = (
    "stop.recorded",
    "stop.killed",
    "end.confirmed",
    "end.saved",
    "log.copied",
    "log.sealed",
)
PREPARE_STEPS = ("prepare.reserved", "prepare.waiting")
REMOVAL_STEPS = ("container.removed", "discard.buried")
STEPS = (
    *PREPARE_STEPS,
    *START_STEPS,
    *CLAIM_STEPS,
    *RESTART_STEPS,
    *STOP_STEPS,
    *REMOVAL_STEPS,
)
"""Every step, in the order of a session's life."""
