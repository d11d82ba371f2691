"""Refusals of requests before any route: malformed, too long, too many."""

import json
from http import HTTPStatus

from controlplane.http.errors import REFUSED, error_body, level_of
from controlplane.http.event_source import for_event_source
from controlplane.http.input import UnreadableError
from controlplane.http.messages import Reply, Request, encoded_head, identifier
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

_MESSAGES = {
    400: "bad request",
    431: "request header fields too large",
    503: "service unavailable",
}


def refuse(request: Request, status: int, details: str) -> Reply:
    """Refuse a request; its connection serves no further one."""
    body = _refusal(
        request.raw_path,
        request.identifier,
        address=request.remote or "",
        status=status,
        details=details,
    )
    return for_event_source(request, Reply(body, status, is_last=True))


def refuse_unread(error: UnreadableError, address: str) -> bytes:
    """Return the response to data that is no request."""
    name = identifier()
    body = _refusal(error.path, name, address=address, status=error.status, details=error.details)
    reason = HTTPStatus(error.status).phrase
    headers = {"Connection": "close"}
    return (
        encoded_head(name, len(body), status=error.status, reason=reason, headers=headers) + body
    )


def _refusal(path: str, name: str, *, address: str, status: int, details: str) -> bytes:
    log.log(level_of(status), REFUSED, request=name, address=address, status=status, error=details)
    message = _MESSAGES.get(status, "internal error")
    body = error_body(path, name, status=status, message=message, details=details)
    return json.dumps(body).encode()
