"""Metrics of HTTP: requests by their routes, connections, streams."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import Counter, Gauge

from controlplane.metrics.making import Maker, Registry

UNMATCHED = "unmatched"
"""The route of a request for which there is none."""

_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD"})
_OTHER_METHOD = "other"


class HttpMetrics:
    """Requests to every listener, and the bytes that streams pass on."""

    def __init__(self, registry: Registry = None) -> None:
        make = Maker(registry)
        self._requests = make.counter(
            "http_requests_total",
            "Requests answered; status 499 where the caller hung up before.",
            *("method", "route", "status"),
        )
        self._seconds = make.histogram(
            "http_request_duration_seconds",
            "Seconds from the end of a request's header until its answer is made, or streamed.",
            *("method", "route"),
        )
        self._in_progress = make.gauge("http_requests_in_progress", "Requests being answered.")
        self.authentication_failures = make.counter(
            "authentication_failures_total", "Requests without a token that is known."
        )
        passed = make.counter(
            "streamed_bytes_total", "Bytes of logs and artifacts sent to callers.", "stream"
        )
        self.log_bytes, self.artifact_bytes = passed.labels("log"), passed.labels("artifact")
        self._connections = make.gauge("http_connections", "Open connections.", "listener")
        self._turned_away = make.counter(
            "http_connections_refused_total",
            "Connections closed at once: one too many, or not of a trusted proxy.",
            "listener",
        )

    @contextmanager
    def request(self, method: str, route: str) -> Iterator[Callable[[int], None]]:
        """Count and time a request; call what is given with the status of its answer.

        Without that it is counted as 500, or as 499 when its handler was cancelled.
        """
        method = method if method in _METHODS else _OTHER_METHOD
        status, began = [500], perf_counter()
        self._in_progress.inc()
        try:
            yield lambda answered: status.__setitem__(0, answered)
        except asyncio.CancelledError:
            status[0] = 499
            raise
        finally:
            self._in_progress.dec()
            self._requests.labels(method, route, str(status[0])).inc()
            self._seconds.labels(method, route).observe(perf_counter() - began)

    def listener(self, name: str) -> "ListenerMetrics":
        """Give those of one listener."""
        return ListenerMetrics(self._connections.labels(name), self._turned_away.labels(name))


class ListenerMetrics:
    """Connections of one listener."""

    def __init__(self, is_open: Gauge, turned_away: Counter) -> None:
        self.is_open = is_open
        self.turned_away = turned_away
