"""The control plane's own errors: a reason, a template and typed fields.

They know neither HTTP nor gRPC: `agent_rpc/client.py` creates them from agents' responses, and
`http/errors.py` maps each reason to a status.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import ClassVar

from tiltyard.contract import ErrorReason
from tiltyard.errors import TemplateError


class Reason(Enum):
    """Why a request is refused; `http/errors.py` gives each its status."""

    UNAUTHORIZED = auto()
    FORBIDDEN = auto()
    INVALID_REQUEST = auto()
    BAD_REQUEST = auto()
    NOT_FOUND = auto()
    CONFLICT = auto()
    GONE = auto()
    BEYOND_END = auto()
    TOO_LARGE = auto()
    QUOTA_EXCEEDED = auto()
    TOO_MANY = auto()
    CANNOT_START = auto()
    HOSTS_UNRESPONSIVE = auto()
    UNAVAILABLE = auto()
    TIMEOUT = auto()


class NoCapacityCause(StrEnum):
    """Why no host took a start."""

    NO_ROOM = auto()
    RATE = auto()  # The account exceeds its start rate in the region
    QUEUE_FULL = auto()  # The start queue is full
    OUT_OF_TIME = auto()
    HOSTS_UNRESPONSIVE = auto()  # Hosts that may have room do not answer
    HOSTS_FAILED = auto()  # Hosts failed for a reason other than capacity


class StoreError(Exception):
    """The database cannot be opened or used; the text is for the operator."""


class NewerStoreError(StoreError):
    """A newer program has written the database: another start fails again."""


class AgentRefusedError(TemplateError):
    """An agent returned an error; `text` is its message."""

    agent_reason: ErrorReason
    text: str
    template = "{agent_reason}: {text}"


class AgentUnavailableError(TemplateError):
    """An agent did not answer, or its response was lost: the outcome is unknown."""

    text: str
    template = "{text}"


class AgentNewerError(AgentUnavailableError):
    """An agent answered in a newer format than this control plane reads."""


class AgentExcessError(AgentUnavailableError):
    """An agent reported more than a host can have: it is broken or compromised."""


class ImageRefusedError(Exception):
    """The image of a tag is not acceptable; the text continues "its image ..."."""


class TiltyardError(TemplateError):
    """Base of API errors, which have a short and a long text."""

    reason: ClassVar[Reason]
    detail_template: ClassVar[str] = ""

    @property
    def message(self) -> str:
        """The short message, the same for every cause of this kind."""
        return super().__str__()

    @property
    def details(self) -> str:
        """The long message; by default the short one."""
        return self.detail_template.format_map(vars(self)) or self.message

    def __str__(self) -> str:
        return self.message if self.details == self.message else f"{self.message}: {self.details}"


MAX_VIOLATIONS = 100  # The violations that a response lists; it counts further ones


@dataclass(frozen=True, slots=True)
class Violation:
    """One bad field of a request; `field` is a path such as `ports[0].host`."""

    field: str
    description: str

    def __str__(self) -> str:
        return f"{self.field}: {self.description}"


class UnauthorizedError(TiltyardError):
    """The token is missing or invalid; the same response for all kinds."""

    reason = Reason.UNAUTHORIZED
    template = "bearer token incorrect"


class ForbiddenError(TiltyardError):
    """The token does not hold the scope."""

    scope: str
    reason = Reason.FORBIDDEN
    template = "token lacks permission"
    detail_template = "this call needs the scope {scope}"


class CannotDelegateError(TiltyardError):
    """A token would get scopes that its parent does not have."""

    scopes: str
    reason = Reason.FORBIDDEN
    template = "token lacks permission"
    detail_template = "cannot delegate {scopes}: this token does not have it"


class InvalidRequestError(TiltyardError):
    """An invalid body, query or path; has all invalid fields."""

    violations: tuple[Violation, ...]
    reason = Reason.INVALID_REQUEST
    template = "cannot accept the request: {violations[0]}"

    @property
    def listed(self) -> tuple[Violation, ...]:
        """The violations that a response lists."""
        return self.violations[:MAX_VIOLATIONS]

    @property
    def details(self) -> str:
        """The violations in one line."""
        left_out = len(self.violations) - len(self.listed)
        more = f"; and {left_out} more" if left_out else ""
        return "; ".join(map(str, self.listed)) + more

    def __str__(self) -> str:
        return f"cannot accept the request: {self.details}"


class BadRequestError(InvalidRequestError):
    """An invalid request for which the interface documents 400."""

    reason = Reason.BAD_REQUEST


class BodyTooLargeError(TiltyardError):
    """The body is larger than this call accepts."""

    max_bytes: int
    reason = Reason.TOO_LARGE
    template = "request body larger than {max_bytes} bytes"


class NotFoundError(TiltyardError):
    """An object in a request does not exist, or belongs to another account."""

    kind: str
    name: str
    reason = Reason.NOT_FOUND
    template = "{kind} not found"
    detail_template = "cannot find {kind} {name!r}"


class ConflictError(TiltyardError):
    """The request conflicts with the current state."""

    what: str
    reason = Reason.CONFLICT
    template = "{what}"


class StoppedDuringStartError(ConflictError):
    """The session was stopped during its start."""

    what: str = "the session was stopped during its start"


class QuotaExceededError(TiltyardError):
    """The account's quota does not allow the request."""

    limit: str
    what: str = "start"
    reason = Reason.QUOTA_EXCEEDED
    template = "quota exhausted"
    detail_template = "cannot {what}: the account's quota of {limit} is exhausted"


RETRY_AFTER = 5  # Seconds after which a retry is worthwhile: hosts report every 2 s


class NoCapacityError(TiltyardError):
    """No host can take the session now; `retry_after` in seconds."""

    location: str
    why: str
    retry_after: int
    cause: NoCapacityCause
    reason = Reason.CANNOT_START
    template = "session cannot currently start in the region"
    detail_template = "cannot start in {location!r}: {why}"


class HostsUnresponsiveError(NoCapacityError):
    """Hosts that could take the session do not answer, and no other host can take it."""

    cause: NoCapacityCause = NoCapacityCause.HOSTS_UNRESPONSIVE
    reason = Reason.HOSTS_UNRESPONSIVE
    template = "hosts in the region do not answer"


class ImageCannotRunError(TiltyardError):
    """The engine cannot start the image, on any host; do not retry."""

    cause: str
    reason = Reason.CANNOT_START
    template = "image cannot run"
    detail_template = "cannot start: {cause}"


class HostUnavailableError(TiltyardError):
    """The session's host does not answer, or cannot carry out the request."""

    why: str
    reason = Reason.UNAVAILABLE
    template = "host of the session unavailable"
    detail_template = "{why}"


class HostBusyError(TiltyardError):
    """The session's host lacks capacity for the request now; `retry_after` in seconds."""

    why: str
    retry_after: int
    reason = Reason.UNAVAILABLE
    template = "host of the session busy"
    detail_template = "{why}"


class TooManyRequestsError(TiltyardError):
    """An address exceeds its request rate; `retry_after` in seconds."""

    retry_after: int
    reason = Reason.UNAVAILABLE
    template = "too many requests from this address"


class AccountBusyError(TooManyRequestsError):
    """The request queue of an account is full."""

    template = "too many requests of this account are in progress"


class TooManyStreamsError(TiltyardError):
    """A token or an account follows too many streams of events; `retry_after` in seconds."""

    whose: str
    retry_after: int
    reason = Reason.TOO_MANY
    template = "too many streams of events"
    detail_template = "cannot follow events: too many streams of this {whose} are open"


class BodiesBusyError(TooManyRequestsError):
    """The bodies of an account's requests take up its share of the memory."""

    template = "too many bytes in the request bodies of this account"


class NotReadyError(TiltyardError):
    """Not all agents have reported to the control plane yet."""

    reason = Reason.UNAVAILABLE
    template = "not ready"
    detail_template = "not all agents have reconciled yet"


class HostsNotReportedError(TiltyardError):
    """Hosts without a report since startup may change the answer; `retry_after` in seconds."""

    count: int
    regions: str
    retry_after: int
    reason = Reason.UNAVAILABLE
    template = "hosts have not reported yet"
    detail_template = (
        "cannot answer yet: {count} of the hosts in {regions} have not reported"
        " since the control plane started"
    )


class SessionNotReadyError(TiltyardError):
    """A start with `Prefer: wait=ready` was not ready in time, and is stopped."""

    session_id: str
    why: str
    reason = Reason.TIMEOUT
    template = "session not ready in time"
    detail_template = "session {session_id!r} was stopped: {why}"


class StoppingError(TiltyardError):
    """The control plane is shutting down, and the outcome is unknown."""

    why: str
    reason = Reason.UNAVAILABLE
    template = "the service is shutting down"
    detail_template = "{why}"


class BeyondLogError(TiltyardError):
    """A log ends before the requested offset."""

    offset: int
    end: int
    reason = Reason.BEYOND_END
    template = "the log ends before the offset"
    detail_template = "cannot read the log from byte {offset}: it ends at {end}"


class ArtifactTooLargeError(TiltyardError):
    """The artifact exceeds a limit: bytes, entries or the length of names."""

    why: str
    reason = Reason.TOO_LARGE
    template = "artifact too large"
    detail_template = "{why}"


class RegistryUnavailableError(TiltyardError):
    """The registry fails or sends an invalid response."""

    registry: str
    why: str
    reason = Reason.UNAVAILABLE
    template = "registry unavailable"
    detail_template = "cannot ask registry {registry!r}: {why}"


class RegistryTimeoutError(TiltyardError):
    """The registry does not answer in time."""

    registry: str
    reason = Reason.TIMEOUT
    template = "registry did not answer in time"
    detail_template = "cannot ask registry {registry!r}: it did not answer in time"
