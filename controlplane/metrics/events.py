"""Metrics of the readers of the log of events."""

from controlplane.metrics.making import metric_factory
from tiltyard.runtime.metrics.making import Registry

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)

ENDS = ("client", "gap", "newest", "shutdown", "slow", "token", "failure")
"""Why streams end: `newest` is the end of one that does not follow."""


class EventMetrics:
    """Metrics of the log's readers; streams by their form, `sse` or `ndjson`."""

    def __init__(self, registry: Registry = None) -> None:
        make = metric_factory(registry)
        self.read_after = make.histogram(
            "event_read_after_seconds",
            "Seconds from the time of an event until the readers that follow the log can get it.",
            buckets=_SECONDS,
        )
        self.sent_after = make.histogram(
            "event_sent_after_seconds",
            "Seconds from the time of an event until a stream that follows the log has sent it.",
            buckets=_SECONDS,
        )
        self.streams = make.gauge("event_streams", "Open streams of events.", "form")
        self.sent = make.counter("event_stream_events_total", "Events sent in streams.", "form")
        self.ended = make.counter("event_streams_ended_total", "Ended streams of events.", "why")
        for why in ENDS:
            self.ended.labels(why)
        self.refused = make.counter(
            "event_streams_refused_total", "Streams refused since too many are open."
        )
        self.gaps = make.counter(
            "event_gaps_total",
            "Reads after a position whose events were removed, or of another epoch.",
        )
