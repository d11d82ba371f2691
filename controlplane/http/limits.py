"""Deadlines of the connections of the HTTP API."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines of a connection, in seconds."""

    header: float = 10.0
    """From connecting, or a later request's first byte, to the end of the headers; also for a
    TLS handshake."""
    body: float = 30.0  # From there to the end of the body: the maximum of 1 MiB at 280 kbit/s
    unread: float = 10.0  # From an answer to the end of a body that its handler has not read
    idle: float = 75.0
    """Between requests: longer than clients and proxies usually keep a connection (60 s)."""
    stall: float = 120.0
    """For a reader without any progress. Slow readers, idle logs and long downloads are not
    limited: they keep one chunk in memory."""
    linger: float = 2.0
    """For discarding input after a refusal: closing at once would reset the connection, and the
    client could lose the response."""
