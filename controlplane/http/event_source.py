"""Server-sent events, the format that a browser's EventSource reads (HTML standard, 9.2).

An EventSource ends for good at every status but 200, also at one that is worth a retry. So errors
of that kind are sent to it as a stream of one event, after which it connects again.
"""

import json
from random import uniform
from typing import Any

from controlplane.http.accept import preferred
from controlplane.http.messages import JSON, Reply, Request

EVENT_STREAM = "text/event-stream"
NDJSON = "application/x-ndjson"
FORMS = (JSON, NDJSON, EVENT_STREAM)

GAP = "stream.gap"
END = "stream.end"
"""Types of events that report on the stream itself; no event of the log has this topic."""

_RETRIED = frozenset({410, 429, 500, 503, 504})
_SOONEST = 1.0
_LATEST = 5.0
"""Seconds until a reader connects again: many that were disconnected together come apart."""


def form_of(request: Request) -> str:
    """Return the media type in which a client prefers events."""
    return preferred(request.headers.getall("Accept", ()), FORMS)


def frame(kind: str, data: str, event_id: str | None = None) -> str:
    """Format an event; `data` is one line. Without an id the reader keeps its last one."""
    head = "" if event_id is None else f"id: {event_id}\n"
    return f"{head}event: {kind}\ndata: {data}\n\n"


def retry_frame(seconds: float | None = None) -> str:
    """Set the time after which a reader connects again, by default a random one."""
    wait = uniform(_SOONEST, _LATEST) if seconds is None else seconds  # noqa: S311 - no secret
    return f"retry: {round(wait * 1000)}\n\n"


def for_event_source(request: Request, refusal: Reply) -> Reply:
    """Return an error as its client can use it: to an EventSource as a stream, if it may retry.

    The content of `refusal` is an ErrorResponse. With `resume` the reader continues after it.
    """
    may_retry = refusal.status in _RETRIED and request.method in {"GET", "HEAD"}
    if not may_retry or form_of(request) != EVENT_STREAM:
        return refusal
    error: dict[str, Any] = json.loads(refusal.content)
    resume = error.get("resume")
    shown = {"type": END, "why": error["code"].lower(), "error": error}
    if resume is not None:
        shown |= {"id": resume, "type": GAP, "oldest": error["oldest"]}
    retry_after = refusal.headers.get("Retry-After")
    content = retry_frame(None if retry_after is None else float(retry_after))
    content += frame(shown["type"], json.dumps(shown), resume)
    return Reply(
        content.encode(),
        headers={"X-Accel-Buffering": "no"},
        is_last=refusal.is_last,
        content_type=EVENT_STREAM,
    )
