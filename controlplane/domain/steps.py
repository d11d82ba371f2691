"""Failpoints of the control plane (`tiltyard.runtime.failpoints`)."""

START_STEPS = ("start.reserved", "start.attempted", "start.answered", "start.confirmed")
CLAIM_STEPS = (
    "claim.taken",
    "claim.attempted",
    "claim.answered",
    "claim.unconfirmed",
    "claim.confirmed",
)
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
    *START_STEPS,
    *CLAIM_STEPS,
    *STOP_STEPS,
    *TAG_STEPS,
    *TOKEN_STEPS,
    *PLAYER_STEPS,
    *AUTHORITY_STEPS,
)
"""All failpoints; each follows a commit or an answer, `claim.taken` a choice in memory."""
