"""Errors of the agent: a reason, a message template and typed fields.

`docker/errors.py` translates the engine's errors to these, `rpc/statuses.py` these to gRPC.
"""

from typing import ClassVar

from tiltyard.contract import ErrorReason
from tiltyard.errors import TemplateError


class AgentError(TemplateError):
    """Base of all errors of the agent."""

    reason: ClassVar[ErrorReason] = ErrorReason.INTERNAL
    template = "cannot complete the call: internal error"


class InvalidArgumentError(AgentError):
    """A field of a request is missing, malformed or outside its limits."""

    field: str
    cause: str
    reason = ErrorReason.INVALID_ARGUMENT
    template = "cannot accept {field}: {cause}"


class SessionNotFoundError(AgentError):
    """No session of this internal id is known."""

    internal_id: str
    reason = ErrorReason.SESSION_NOT_FOUND
    template = "cannot find session {internal_id}"


class SpecConflictError(AgentError):
    """The internal id is known with another spec."""

    internal_id: str
    reason = ErrorReason.SPEC_CONFLICT
    template = "cannot start session {internal_id}: it is known with another spec"


class SessionStoppedError(AgentError):
    """A stop for this internal id arrived before or during its start."""

    internal_id: str
    reason = ErrorReason.SESSION_STOPPED
    template = "cannot start session {internal_id}: it was stopped"


class SessionLiveError(AgentError):
    """The session has not ended yet."""

    internal_id: str
    reason = ErrorReason.SESSION_LIVE
    template = "cannot read from the container of session {internal_id}: it has not ended"


class NoCapacityError(AgentError):
    """The host lacks a resource that a session reserves."""

    resource: str
    wanted: float
    free: float
    reason = ErrorReason.NO_CAPACITY
    template = "cannot reserve {wanted:g} {resource}: {free:g} free"


class NoFreePortError(AgentError):
    """Too few ports of the range are free: `wanted` is "a udp port" or "4 neighbouring ports"."""

    wanted: str
    reason = ErrorReason.NO_FREE_PORT
    template = "cannot reserve {wanted}: none is free in the range"


class PortTakenError(AgentError):
    """A host port is in use: `protocol` "" and `port` 0 if the engine does not name it."""

    protocol: str
    port: int
    reason = ErrorReason.PORT_TAKEN
    template = "cannot reserve {protocol} port {port}: it is in use"


class PortOutOfRangeError(AgentError):
    """A pinned port is outside the host's range."""

    port: int
    first: int
    last: int
    reason = ErrorReason.PORT_OUT_OF_RANGE
    template = "cannot reserve port {port}: the range is {first}-{last}"


class StartQueueFullError(AgentError):
    """The host is starting as many containers as it can, or as many of the account."""

    slots: int
    reason = ErrorReason.START_QUEUE_FULL
    template = "cannot begin the start: none of {slots} start slots is free for the account"


class DrainingError(AgentError):
    """The host takes no new sessions."""

    reason = ErrorReason.DRAINING
    template = "cannot start a session: the host is drained"


class StaleRevisionError(AgentError):
    """A newer order was applied before this one."""

    revision: int
    known: int
    reason = ErrorReason.STALE_REVISION
    template = "cannot apply revision {revision}: {known} is applied already"


class NotReconciledError(AgentError):
    """The agent has not reconciled its records with the engine yet."""

    reason = ErrorReason.NOT_RECONCILED
    template = "cannot start sessions yet: records are not reconciled with the engine"


class ImageMissingError(AgentError):
    """The image is not on this host."""

    image: str
    reason = ErrorReason.IMAGE_MISSING
    template = "cannot run {image}: it is not on this host"


class ImageCannotRunError(AgentError):
    """The image cannot be started on any host."""

    cause: str
    reason = ErrorReason.IMAGE_CANNOT_RUN
    template = "cannot run the image: {cause}"


class ImageNotFoundError(AgentError):
    """The registry does not have the image."""

    image: str
    reason = ErrorReason.IMAGE_NOT_FOUND
    template = "cannot pull {image}: the registry does not have it"


class RegistryUnavailableError(AgentError):
    """The registry cannot be reached, rejects the request, or sends an invalid response."""

    image: str
    cause: str
    reason = ErrorReason.REGISTRY_UNAVAILABLE
    template = "cannot pull {image}: {cause}"


class RegistryRefusedError(RegistryUnavailableError):
    """The registry requires credentials, or denies them access to the image."""

    template = "cannot pull {image}: the registry denies access: {cause}"


class RegistryTimeoutError(AgentError):
    """The registry did not answer in time."""

    image: str
    cause: str = "the registry did not answer in time"
    reason = ErrorReason.REGISTRY_TIMEOUT
    template = "cannot pull {image}: {cause}"


class ImageInUseError(AgentError):
    """The image to be removed is in use."""

    image: str
    cause: str
    reason = ErrorReason.IMAGE_IN_USE
    template = "cannot remove {image}: {cause}"


class NotAllowedError(AgentError):
    """The host policy does not allow the request."""

    what: str
    cause: str
    reason = ErrorReason.NOT_ALLOWED
    template = "cannot {what}: this host's policy {cause}"


class NoCertificateError(AgentError):
    """A session has a TLS port, but the host has no certificate."""

    reason = ErrorReason.NOT_ALLOWED
    template = "cannot terminate TLS: this host has no valid certificate"


class EngineUnavailableError(AgentError):
    """The container engine cannot be reached."""

    cause: str
    reason = ErrorReason.ENGINE_UNAVAILABLE
    template = "cannot reach the container engine: {cause}"


class EngineTimeoutError(AgentError):
    """The engine's response was lost or late; the outcome is unknown until it is read again."""

    call: str
    reason = ErrorReason.ENGINE_TIMEOUT
    template = "cannot confirm {call}: no response from the container engine"


class EngineError(AgentError):
    """Any other failure of the engine."""

    call: str
    cause: str
    reason = ErrorReason.ENGINE_ERROR
    template = "cannot {call}: {cause}"


class FirewallFailedError(EngineError):
    """The engine could not write firewall rules, since other programs interfere."""


class HandOverFailedError(EngineError):
    """A container's init did not execute its program: it does not wait, or ended meanwhile."""


class CannotKillError(AgentError):
    """The container does not end, not even by SIGKILL."""

    internal_id: str
    reason = ErrorReason.CANNOT_KILL
    template = "cannot end session {internal_id}: SIGKILL did not end its process"


class ContainerGoneError(AgentError):
    """The container is no longer on the host."""

    container: str
    reason = ErrorReason.CONTAINER_GONE
    template = "cannot find container {container}"


class ContainerExistsError(AgentError):
    """A container of this name exists, possibly from an earlier attempt."""

    name: str
    reason = ErrorReason.ENGINE_ERROR
    template = "cannot create container {name}: the name is in use"


class PathNotFoundError(AgentError):
    """The path does not exist in the container."""

    path: str
    reason = ErrorReason.PATH_NOT_FOUND
    template = "cannot find {path!r} in the container"


class ArtifactTooLargeError(AgentError):
    """The artifact exceeds the download limit; `limit` is in bytes of tar, or in `what`."""

    limit: int
    what: str = "bytes"
    reason = ErrorReason.ARTIFACT_TOO_LARGE
    template = "cannot send the artifact: it has more than {limit} {what}"


class ReadersBusyError(AgentError):
    """All slots or space for readers of artifacts or logs are in use; temporary."""

    cause: str
    reason = ErrorReason.NO_CAPACITY
    template = "cannot serve another reader now: {cause}"


class ReaderTooSlowError(AgentError):
    """An artifact was read too slowly and has been removed."""

    reason = ErrorReason.NO_CAPACITY
    template = "cannot send the artifact: it is read too slowly"


class UnreadableTarError(AgentError):
    """The engine's archive is truncated or malformed."""

    cause: str
    reason = ErrorReason.ENGINE_ERROR
    template = "cannot read the engine's archive: {cause}"


class LogGoneError(AgentError):
    """The log is no longer on the host."""

    internal_id: str
    reason = ErrorReason.LOG_GONE
    template = "cannot read the log of session {internal_id}: it is no longer on this host"


class DiskFullError(AgentError):
    """A disk of the host is full or cannot be written."""

    path: str
    cause: str
    reason = ErrorReason.DISK_FULL
    template = "cannot write {path}: {cause}"


class StandbyNotClaimableError(AgentError):
    """A standby is unknown, not ready, in doubt, ending, or claimed by another session."""

    cause: str
    reason = ErrorReason.STANDBY_NOT_CLAIMABLE
    template = "cannot claim the standby: {cause}"
