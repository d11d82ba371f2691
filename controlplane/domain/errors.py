"""The control plane's own errors: a reason, a template and typed fields.

They know neither HTTP nor gRPC: `agent_client.py` makes them from what agents answer, and
`api/errors.py` maps each reason to a status in one table.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import ClassVar


class Reason(Enum):
    """Why a request cannot be answered as asked; `api/errors.py` gives each its status."""

    UNAUTHORIZED = auto()
    FORBIDDEN = auto()
    INVALID_REQUEST = auto()
    BAD_REQUEST = auto()
    NOT_FOUND = auto()
    CONFLICT = auto()
    TOO_LARGE = auto()
    QUOTA_EXCEEDED = auto()
    CANNOT_START = auto()
    UNAVAILABLE = auto()
    TIMEOUT = auto()


class AgentReason(StrEnum):
    """ErrorReason of the proto by name; a test compares the two."""

    INVALID_ARGUMENT = auto()
    SESSION_NOT_FOUND = auto()
    SPEC_CONFLICT = auto()
    SESSION_STOPPED = auto()
    SESSION_LIVE = auto()
    NO_CAPACITY = auto()
    NO_FREE_PORT = auto()
    PORT_TAKEN = auto()
    PORT_OUT_OF_RANGE = auto()
    START_QUEUE_FULL = auto()
    NOT_RECONCILED = auto()
    DRAINING = auto()
    IMAGE_MISSING = auto()
    IMAGE_CANNOT_RUN = auto()
    IMAGE_NOT_FOUND = auto()
    IMAGE_IN_USE = auto()
    REGISTRY_UNAVAILABLE = auto()
    REGISTRY_TIMEOUT = auto()
    ENGINE_UNAVAILABLE = auto()
    ENGINE_TIMEOUT = auto()
    ENGINE_ERROR = auto()
    CANNOT_KILL = auto()
    CONTAINER_GONE = auto()
    PATH_NOT_FOUND = auto()
    ARTIFACT_TOO_LARGE = auto()
    LOG_GONE = auto()
    DISK_FULL = auto()
    STANDBY_NOT_CLAIMABLE = auto()
    STALE_REVISION = auto()
    UNIMPLEMENTED = auto()
    INTERNAL = auto()
    NOT_ALLOWED = auto()


class NoCapacityCause(StrEnum):
    """What kept a start from every host."""

    NO_ROOM = auto()
    RATE = auto()
    """The account has started too many in the region."""
    QUEUE_FULL = auto()
    """Too many wait for a slot."""
    OUT_OF_TIME = auto()
    HOSTS_SILENT = auto()
    HOSTS_FAILED = auto()
    """The hosts that were asked failed for a reason other than room."""


class StoreError(Exception):
    """The database cannot be opened or used; the text is for the operator."""


@dataclass(eq=False)
class AgentRefusedError(Exception):
    """An agent answered that it cannot; `text` is for people."""

    agent_reason: AgentReason
    text: str

    def __str__(self) -> str:
        return f"{self.agent_reason}: {self.text}"


@dataclass(eq=False)
class AgentSilentError(Exception):
    """An agent did not answer, or its answer was lost: what it did is unknown."""

    text: str

    def __str__(self) -> str:
        return self.text


class AgentNewerError(AgentSilentError):
    """An agent answered in a format that this control plane cannot read."""


class ImageRefusedError(Exception):
    """What a tag names may not be pulled; the text says why, to follow "its image"."""


class TiltyardError(Exception):
    """Base of what a caller is told; a subclass is a dataclass of the fields of its templates."""

    reason: ClassVar[Reason]
    template: ClassVar[str]
    detail_template: ClassVar[str] = ""

    @property
    def message(self) -> str:
        """The short text, the same for every cause of this kind."""
        return self.template.format_map(vars(self))

    @property
    def details(self) -> str:
        """The long text; the message again where there is nothing to add."""
        return self.detail_template.format_map(vars(self)) or self.message

    def __str__(self) -> str:
        return self.message if self.details == self.message else f"{self.message}: {self.details}"


MAX_VIOLATIONS = 100
"""Of one request that an answer lists; of more it gives the number."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One bad field of a request; `field` is a path such as `ports[0].host`."""

    field: str
    description: str

    def __str__(self) -> str:
        return f"{self.field}: {self.description}"


@dataclass(eq=False)
class UnauthorizedError(TiltyardError):
    """The token is missing or bad; one answer for every kind."""

    reason = Reason.UNAUTHORIZED
    template = "bearer token incorrect"


@dataclass(eq=False)
class ForbiddenError(TiltyardError):
    """The token does not hold the scope."""

    scope: str
    reason = Reason.FORBIDDEN
    template = "token lacks permission"
    detail_template = "this call needs the scope {scope}"


@dataclass(eq=False)
class CannotDelegateError(TiltyardError):
    """A token would get scopes that its maker does not hold."""

    scopes: str
    reason = Reason.FORBIDDEN
    template = "token lacks permission"
    detail_template = "cannot delegate {scopes}: this token does not hold it"


@dataclass(eq=False)
class InvalidRequestError(TiltyardError):
    """A body, query or path that does not fit; carries every bad field at once."""

    violations: tuple[Violation, ...]
    reason = Reason.INVALID_REQUEST
    template = "cannot accept the request: {violations[0]}"

    @property
    def listed(self) -> tuple[Violation, ...]:
        """The violations that an answer lists."""
        return self.violations[:MAX_VIOLATIONS]

    @property
    def details(self) -> str:
        """The violations in one line."""
        left_out = len(self.violations) - len(self.listed)
        more = f"; and {left_out} more" if left_out else ""
        return "; ".join(map(str, self.listed)) + more

    def __str__(self) -> str:
        return f"cannot accept the request: {self.details}"


@dataclass(eq=False)
class BadRequestError(InvalidRequestError):
    """The same where the interface documents 400 for it."""

    reason = Reason.BAD_REQUEST


@dataclass(eq=False)
class BodyTooLargeError(TiltyardError):
    """The body is larger than this call accepts."""

    max_bytes: int
    reason = Reason.TOO_LARGE
    template = "request body larger than {max_bytes} bytes"


@dataclass(eq=False)
class NotFoundError(TiltyardError):
    """Something that a request names is not there, or is another account's."""

    kind: str
    name: str
    reason = Reason.NOT_FOUND
    template = "{kind} not found"
    detail_template = "cannot find {kind} {name!r}"


@dataclass(eq=False)
class ConflictError(TiltyardError):
    """What is asked for contradicts what is."""

    what: str
    reason = Reason.CONFLICT
    template = "{what}"


@dataclass(eq=False)
class StoppedDuringStartError(ConflictError):
    """The session was stopped while it was started."""

    what: str = "the session was stopped during its start"


@dataclass(eq=False)
class QuotaExceededError(TiltyardError):
    """The account's quota does not allow what is asked for."""

    limit: str
    what: str = "start"
    reason = Reason.QUOTA_EXCEEDED
    template = "quota exhausted"
    detail_template = "cannot {what}: the account's quota of {limit} is exhausted"


@dataclass(eq=False)
class NoCapacityError(TiltyardError):
    """No host can take the session now; `retry_after` in seconds."""

    location: str
    why: str
    retry_after: int
    cause: NoCapacityCause
    reason = Reason.CANNOT_START
    template = "session cannot currently start in the region"
    detail_template = "cannot start in {location!r}: {why}"


@dataclass(eq=False)
class ImageCannotRunError(TiltyardError):
    """The engine refuses to start the image, here and anywhere; trying again is no use."""

    cause: str
    reason = Reason.CANNOT_START
    template = "image cannot run"
    detail_template = "cannot start: {cause}"


@dataclass(eq=False)
class HostUnavailableError(TiltyardError):
    """The session's host does not answer or cannot do what is asked."""

    why: str
    reason = Reason.UNAVAILABLE
    template = "host of the session unavailable"
    detail_template = "{why}"


@dataclass(eq=False)
class HostBusyError(TiltyardError):
    """The session's host has no room for what is asked just now; `retry_after` in seconds."""

    why: str
    retry_after: int
    reason = Reason.UNAVAILABLE
    template = "host of the session busy"
    detail_template = "{why}"


@dataclass(eq=False)
class TooManyRequestsError(TiltyardError):
    """One address asks more often than it may; `retry_after` in seconds."""

    retry_after: int
    reason = Reason.UNAVAILABLE
    template = "too many requests of this address"


@dataclass(eq=False)
class AccountBusyError(TooManyRequestsError):
    """More requests of one account wait than may wait."""

    template = "too many requests of this account are under way"


@dataclass(eq=False)
class NotReadyError(TiltyardError):
    """The control plane has not yet heard from every agent."""

    reason = Reason.UNAVAILABLE
    template = "not ready"
    detail_template = "not every agent has reconciled yet"


@dataclass(eq=False)
class HostsNotReportedError(TiltyardError):
    """Hosts that have not reported since the control plane started could change the answer.

    `retry_after` in seconds.
    """

    count: int
    regions: str
    retry_after: int
    reason = Reason.UNAVAILABLE
    template = "hosts have not reported yet"
    detail_template = (
        "cannot answer yet: {count} of the hosts in {regions} have not reported"
        " since the control plane started"
    )


@dataclass(eq=False)
class SessionNotReadyError(TiltyardError):
    """A session that was to be answered once it is ready was not, and is ended."""

    session_id: str
    why: str
    reason = Reason.TIMEOUT
    template = "session not ready in time"
    detail_template = "session {session_id!r} was stopped: {why}"


@dataclass(eq=False)
class StoppingError(TiltyardError):
    """The control plane stops, and what was waited for is not known."""

    why: str
    reason = Reason.UNAVAILABLE
    template = "the service stops"
    detail_template = "{why}"


@dataclass(eq=False)
class ArtifactTooLargeError(TiltyardError):
    """The artifact is larger than may be downloaded: in bytes, entries or the length of names."""

    why: str
    reason = Reason.TOO_LARGE
    template = "artifact too large"
    detail_template = "{why}"


@dataclass(eq=False)
class RegistryUnavailableError(TiltyardError):
    """The registry fails or answers what cannot be used."""

    registry: str
    why: str
    reason = Reason.UNAVAILABLE
    template = "registry unavailable"
    detail_template = "cannot ask registry {registry!r}: {why}"


@dataclass(eq=False)
class RegistryTimeoutError(TiltyardError):
    """The registry does not answer in time."""

    registry: str
    reason = Reason.TIMEOUT
    template = "registry did not answer in time"
    detail_template = "cannot ask registry {registry!r}: it did not answer in time"
