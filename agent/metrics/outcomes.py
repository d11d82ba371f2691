"""The outcomes of calls, as label values."""

import contextlib
from collections.abc import Iterator

from agent.domain.errors import AgentError
from tiltyard.contract import ErrorReason
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.metrics.instruments import Counter, Histogram

OK = "ok"  # Outcome of a success; a failure has the name of its ErrorReason
LEFT = "left"  # Outcome of a call that its client canceled


@contextlib.contextmanager
def counted(counter: Counter, *labels: str) -> Iterator[None]:
    """Count the `with` body by its outcome."""
    outcome = LEFT
    try:
        yield
        outcome = OK
    except Exception as error:
        outcome = reason_of(error)
        raise
    finally:
        counter.labels(*labels, outcome).inc()


@contextlib.contextmanager
def timed(counter: Counter, seconds: Histogram, label: str, clock: Clock) -> Iterator[None]:
    """Count the `with` body by its outcome, and time it, failures included."""
    begun = clock.monotonic()
    try:
        with counted(counter, label):
            yield
    finally:
        seconds.labels(label).observe(clock.monotonic() - begun)


def reason_of(error: Exception) -> str:
    """Return the name of an error's reason, `internal` for unexpected errors."""
    found = error.reason if isinstance(error, AgentError) else ErrorReason.INTERNAL
    return found.name.lower()
