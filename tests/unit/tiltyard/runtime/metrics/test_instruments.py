"""Counters and histograms: what scrapes see is what prometheus_client's own would show."""

import enum
import threading

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from tiltyard.runtime.metrics.instruments import Counter, Histogram

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

BOUNDS = (0.001, 0.25, 1, 2.5, 10)
AMOUNTS = st.one_of(st.floats(-1, 100), st.sampled_from(BOUNDS), st.integers(0, 3))


class Kind(enum.StrEnum):
    WARM = "warm"


def shown(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


@given(amounts=st.lists(AMOUNTS, max_size=20))
def test_histogram_is_exposed_as_by_the_library(amounts: list[float]) -> None:
    ours = CollectorRegistry()
    theirs = CollectorRegistry()
    one = Histogram("a_seconds", "Text.", buckets=BOUNDS, registry=ours)
    other = prometheus_client.Histogram("a_seconds", "Text.", buckets=BOUNDS, registry=theirs)
    for amount in amounts:
        one.observe(amount)
        other.observe(amount)
    assert shown(ours) == shown(theirs)


@given(calls=st.lists(st.tuples(st.sampled_from('ab"\n'), st.sampled_from("xy"), AMOUNTS)))
def test_labelled_metrics_are_exposed_as_by_the_library(
    calls: list[tuple[str, str, float]],
) -> None:
    ours = CollectorRegistry()
    theirs = CollectorRegistry()
    names = ("kind", "result")
    count = Counter("a_total", "Text.", names, registry=ours)
    their_count = prometheus_client.Counter("a_total", "Text.", names, registry=theirs)
    seconds = Histogram("b", "Text.", names, buckets=BOUNDS, registry=ours)
    their_seconds = prometheus_client.Histogram(
        "b", "Text.", names, buckets=BOUNDS, registry=theirs
    )
    for kind, result, amount in calls:
        count.labels(kind, result).inc(abs(amount))
        their_count.labels(kind, result).inc(abs(amount))
        seconds.labels(kind, result).observe(amount)
        their_seconds.labels(kind, result).observe(amount)
    assert shown(ours) == shown(theirs)


def test_enum_and_its_text_are_one_label() -> None:
    registry = CollectorRegistry()
    count = Counter("a_total", "Text.", ("kind",), registry=registry)
    count.labels(Kind.WARM).inc()
    count.labels("warm").inc()
    assert 'a_total{kind="warm"} 2.0' in shown(registry)


def test_wrong_number_of_labels_is_an_error() -> None:
    with pytest.raises(ValueError, match="kind"):
        Counter("a_total", "Text.", ("kind",)).labels("warm", "ready")


def test_exception_is_counted_and_raised() -> None:
    count = Counter("a_total", "Text.")
    with pytest.raises(OSError, match="odd"), count.count_exceptions():
        raise OSError("odd")
    assert count.value == 1


def test_threads_lose_no_addition() -> None:
    count = Counter("a_total", "Text.")
    seconds = Histogram("b", "Text.", buckets=BOUNDS)

    def work() -> None:
        for _ in range(20_000):
            count.inc()
            seconds.observe(0.5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.value == 80_000
    assert seconds.counts == [0, 0, 80_000, 0, 0, 0]
    assert seconds.total == 40_000
