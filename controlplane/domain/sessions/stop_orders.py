"""Why a session or an attempt on a host must end."""

from enum import StrEnum


class StopCause(StrEnum):
    """Why a stop was ordered."""

    REQUESTED = "requested"  # By a caller, of a session that its host has confirmed
    UNANSWERED = "unanswered"  # The host did not answer the start or claim
    SUPERSEDED = "superseded"  # Another session has its id, after the database was lost
    GIVEN_UP = "given_up"  # Its host was given up as lost, and may return with it
