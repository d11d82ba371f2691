"""Claims of standbys by sessions."""

from collections.abc import Mapping

from controlplane.domain.hosts.contract import Port
from controlplane.domain.sessions.attempts import Attempt
from tiltyard.records import record


class StandbyTakenError(Exception):
    """The standby is or may be in use, or its host was removed or revoked."""


@record(frozen=True, slots=True)
class ClaimedStandby:
    """The fields of a claimed standby that the session's row copies.

    `request` is the caller's start request as JSON, for the game.
    """

    attempt: Attempt
    ports: tuple[Port, ...]
    injected_env: Mapping[str, str]
    request: str
