"""Error responses: the table from reason to status and code."""

import json
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, NotRequired

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from controlplane.domain.errors import (
    HostBusyError,
    HostsNotReportedError,
    InvalidRequestError,
    NoCapacityError,
    Reason,
    StoreError,
    TiltyardError,
    TooManyRequestsError,
    TooManyStreamsError,
)
from controlplane.domain.events.positions import EventsGoneError
from controlplane.http.event_source import for_event_source
from controlplane.http.messages import Reply, Request
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

REFUSED = "request refused"  # Log event of every request that was answered with an error

STATUSES: dict[Reason, tuple[int, str]] = {
    Reason.BAD_REQUEST: (400, "INVALID_REQUEST"),
    Reason.UNAUTHORIZED: (401, "UNAUTHORIZED"),
    Reason.QUOTA_EXCEEDED: (402, "QUOTA_EXCEEDED"),
    Reason.FORBIDDEN: (403, "FORBIDDEN"),
    Reason.NOT_FOUND: (404, "RESOURCE_NOT_FOUND"),
    Reason.CONFLICT: (409, "CONFLICT"),
    Reason.TOO_LARGE: (413, "PAYLOAD_TOO_LARGE"),
    Reason.GONE: (410, "EVENTS_GONE"),
    Reason.BEYOND_END: (416, "OFFSET_BEYOND_END"),
    Reason.CANNOT_START: (420, "CAPACITY_UNAVAILABLE"),
    Reason.HOSTS_UNRESPONSIVE: (420, "HOSTS_UNRESPONSIVE"),
    Reason.INVALID_REQUEST: (422, "INVALID_REQUEST"),
    Reason.TOO_MANY: (429, "TOO_MANY_STREAMS"),
    Reason.UNAVAILABLE: (503, "SERVICE_UNAVAILABLE"),
    Reason.TIMEOUT: (504, "GATEWAY_TIMEOUT"),
}
_ALL = (*STATUSES.values(), (405, "METHOD_NOT_ALLOWED"), (500, "INTERNAL_ERROR"))
CODES = {status: [code for known, code in _ALL if known == status] for status, _ in _ALL}
"""The codes of each status; the first one unless the error has another."""
_PHRASES = {420: "Capacity Unavailable"}
_MAX_PATH = _MAX_DETAILS = 2048
_RETRIED = (
    NoCapacityError
    | HostBusyError
    | HostsNotReportedError
    | TooManyRequestsError
    | TooManyStreamsError
)
"""The errors with a `retry_after`."""

Handler = Callable[[Request], Awaitable[web.StreamResponse]]


class BrokenBodyError(Exception):
    """A malformed or late body."""


class ShownViolation(TypedDict):
    """One bad field of a request; `field` is a path such as `ports[0].host`."""

    field: str
    description: str


class ErrorResponse(TypedDict):
    """The body of every error response.

    `violations` lists at most 100 bad fields; `violationCount` is present if there are more. An
    error of events that are gone has the id of the `oldest` one that is left, null if none is, and
    the id after which to `resume`.
    """

    statusCode: int
    code: Annotated[str, Field(json_schema_extra={"enum": sorted({code for _, code in _ALL})})]
    message: str
    details: str
    path: str
    timestamp: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    identifier: Annotated[str, Field(json_schema_extra={"format": "uuid"})]
    violations: NotRequired[list[ShownViolation]]
    violationCount: NotRequired[int]
    oldest: NotRequired[str | None]
    resume: NotRequired[str]


def error_body(
    path: str,
    identifier: str,
    *,
    status: int,
    message: str,
    details: str,
    code: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Build an ErrorResponse; the query of `path` is dropped."""
    sent = path.partition("?")[0][:_MAX_PATH].encode("utf-8", "surrogateescape")
    return {
        "statusCode": status,
        "code": code or CODES.get(status, ["INVALID_REQUEST"])[0],
        "message": message,
        "details": details if len(details) <= _MAX_DETAILS else f"{details[:_MAX_DETAILS]}…",
        "path": sent.decode("utf-8", "replace"),
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "identifier": identifier,
        **more,
    }


def error_response(
    request: Request, status: int, message: str, details: str, **more: Any
) -> Reply:
    """Build the response of an ErrorResponse."""
    body = error_body(
        request.raw_path,
        request.identifier,
        status=status,
        message=message,
        details=details,
        **more,
    )
    return Reply(json.dumps(body).encode(), status, reason=_PHRASES.get(status))


def level_of(status: int) -> int:
    """Return the log level of an error; a caller's mistake is no warning."""
    return logging.WARNING if status >= 500 else logging.INFO


def answer_error(request: Request, error: Exception) -> Reply:
    """Turn a handler's exception into an ErrorResponse without internal details."""
    return for_event_source(request, _response_to(request, error))


def _response_to(request: Request, error: Exception) -> Reply:
    match error:
        case TiltyardError():
            return _from_domain(request, error)
        case web.HTTPException():
            return _from_aiohttp(request, error)
        case BrokenBodyError():
            return error_response(request, 400, "bad request", str(error))
        case StoreError():
            log.error("the database failed", exc_info=error)
            return error_response(request, 503, "service unavailable", "the database failed")
    log.error("request failed: internal error", exc_info=error)
    return error_response(request, 500, "internal error", "the server's log has the cause")


def break_off(request: web.Request, what: str) -> None:
    """Abort the connection after an error, so that no reader takes a part for the whole."""
    log.warning("response aborted", part=what, exc_info=True)  # noqa: LOG014 - see above
    if request.transport is not None:
        request.transport.abort()


def _from_domain(request: Request, error: TiltyardError) -> Reply:
    status, code = STATUSES[error.reason]
    more: dict[str, Any] = {"code": code}
    if isinstance(error, InvalidRequestError):
        more["violations"] = [
            {"field": v.field, "description": v.description} for v in error.listed
        ]
        if len(error.violations) > len(error.listed):
            more["violationCount"] = len(error.violations)
    if isinstance(error, EventsGoneError):
        more["oldest"] = None if error.oldest is None else str(error.oldest)
        more["resume"] = str(error.resume)
    response = error_response(request, status, error.message, error.details, **more)
    if isinstance(error, _RETRIED):
        response.headers["Retry-After"] = str(error.retry_after)
    if error.reason is Reason.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    log.log(level_of(status), REFUSED, address=request.remote, status=status, error=str(error))
    return response


def _from_aiohttp(request: Request, error: web.HTTPException) -> Reply:
    phrase = HTTPStatus(error.status).phrase.lower()
    response = error_response(request, error.status, phrase, phrase)
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response
