"""Metrics of webhooks."""

from controlplane.domain.webhooks.attempts import Answer
from controlplane.domain.webhooks.retries import Outcome
from controlplane.domain.webhooks.webhook import DisabledCause
from controlplane.metrics.making import metric_factory
from tiltyard.runtime.metrics.making import Registry


class WebhookMetrics:
    """Metrics of attempts, and of what follows from them."""

    def __init__(self, registry: Registry = None) -> None:
        make = metric_factory(registry)
        self._attempts = make.counter(
            "webhook_attempts_total",
            "Attempts to deliver a message to an endpoint, by outcome.",
            "outcome",
        )
        for outcome in Outcome:
            self._attempts.labels(outcome.value)
        self._seconds = make.histogram(
            "webhook_attempt_duration_seconds", "Duration of these attempts, in seconds."
        )
        self.in_progress = make.gauge(
            "webhook_attempts_in_progress", "Attempts that wait for their endpoints."
        )
        self._disabled = make.counter(
            "webhooks_disabled_total",
            "Webhooks that were disabled because of their endpoints, by cause.",
            "cause",
        )
        for cause in (DisabledCause.GONE, DisabledCause.FAILING):
            self._disabled.labels(cause.value)
        self.gaps = make.counter(
            "webhook_gaps_total",
            "Gaps: events that were removed or given up before they were delivered.",
        )

    def ended(self, answer: Answer) -> None:
        """Count and time an attempt."""
        self._attempts.labels(answer.outcome.value).inc()
        self._seconds.observe(answer.seconds)

    def disabled(self, cause: DisabledCause) -> None:
        """Count a webhook that was disabled."""
        self._disabled.labels(cause.value).inc()
