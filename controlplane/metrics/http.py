"""HTTP metrics: requests by route, connections, streams."""

from controlplane.metrics.making import metric_factory
from tiltyard.runtime.metrics.instruments import Counter, Histogram
from tiltyard.runtime.metrics.making import Registry

_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"})


class HttpMetrics:
    """Metrics of all listeners."""

    def __init__(self, registry: Registry = None) -> None:
        make = metric_factory(registry)
        self._requests = make.counter(
            "http_requests_total",
            "Answered requests; status 499 if the client disconnected first.",
            "method",
            "route",
            "status",
        )
        self._seconds = make.histogram(
            "http_request_duration_seconds",
            "Seconds from the end of a request's header until its response is ready, or streamed.",
            "method",
            "route",
        )
        self._answered: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.in_progress = 0
        in_progress = make.gauge("http_requests_in_progress", "Requests being answered.")
        in_progress.set_function(lambda: self.in_progress)
        self.authentication_failures = make.counter(
            "authentication_failures_total", "Requests without a known token."
        )
        passed = make.counter(
            "streamed_bytes_total", "Bytes of logs and artifacts sent to callers.", "stream"
        )
        self.log_bytes = passed.labels("log")
        self.artifact_bytes = passed.labels("artifact")
        self.held_bytes = make.gauge(
            "http_held_bytes",
            "Bytes of request bodies in memory, and of responses that wait for their readers.",
            "kind",
        )
        self.held_refusals = make.counter(
            "http_held_refusals_total",
            "Requests refused and connections closed beyond an account's share of these bytes.",
            "kind",
        )
        self.connections = make.gauge("http_connections", "Open connections.", "listener")
        self.turned_away = make.counter(
            "http_connections_refused_total",
            "Connections closed at once: over the limit, or not from a trusted proxy.",
            "listener",
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count and time a request."""
        method = method if method in _METHODS else "other"
        found = self._answered.get((method, route, status))
        if found is None:
            found = (
                self._requests.labels(method, route, str(status)),
                self._seconds.labels(method, route),
            )
            self._answered[method, route, status] = found
        count, duration = found
        count.inc()
        duration.observe(seconds)
