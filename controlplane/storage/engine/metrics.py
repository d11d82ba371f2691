"""Metrics of the database."""

from collections.abc import Callable
from pathlib import Path

from tiltyard.runtime.metrics.making import MetricFactory, Registry

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)
"""A commit takes 0.1 ms on a good disk."""


class StoreMetrics:
    """Metrics of the database."""

    def __init__(self, registry: Registry = None) -> None:
        make = MetricFactory("tiltyard_controlplane_database", registry)
        self.transaction_seconds = make.histogram(
            "transaction_duration_seconds",
            "Seconds from the request for a transaction to its commit, including its queue.",
            buckets=_SECONDS,
        )
        self.commit_seconds = make.histogram(
            "commit_duration_seconds",
            "Duration of commits with their transactions.",
            buckets=_SECONDS,
        )
        self.commit_size = make.histogram(
            "commit_transactions",
            "Transactions that were committed together.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        )
        self.commit_failures = make.counter(
            "commit_failures_total", "Commits that failed and were rolled back."
        )
        self.removed_early = make.counter(
            "rows_removed_early_total",
            "Rows removed before their retention ended, because there were too many.",
            "table",
        )
        self.look_seconds = make.histogram(
            "look_duration_seconds",
            "Duration of short reads outside transactions, including their queue.",
            buckets=_SECONDS,
        )
        self.read_seconds = make.histogram(
            "read_duration_seconds",
            "Duration of long reads outside transactions.",
            buckets=_SECONDS,
        )
        self._waiting = make.gauge(
            "waiting_transactions", "Transactions that wait for the database's thread."
        )
        self._bytes = make.gauge(
            "size_bytes",
            "Size of the database's files: data and write-ahead log.",
            "file",
        )

    def follow(self, path: Path, waiting: Callable[[], int]) -> None:
        """Read the database's file sizes and the number waiting at each scrape."""
        self._waiting.set_function(waiting)
        self._bytes.labels("data").set_function(lambda: _size(path))
        wal = path.with_name(f"{path.name}-wal")
        self._bytes.labels("wal").set_function(lambda: _size(wal))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
