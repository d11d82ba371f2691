"""Claims of standbys by sessions."""

from collections.abc import Mapping

from controlplane.domain.hosts.contract import Port
from controlplane.domain.sessions.attempts import Attempt
from tiltyard.records import record


class StandbyTakenError(Exception):
    """The standby is or may be in use, or its host was removed or revoked."""


@record(frozen=True, slots=True)
class ClaimedStandby:
    """What a new session's row has of the standby that it claims.

    `request`: the caller's, as JSON for the game.
    """

    attempt: Attempt
    ports: tuple[Port, ...]
    injected_env: Mapping[str, str]
    request: str
