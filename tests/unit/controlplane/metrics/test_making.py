"""Histograms of plain numbers look like Prometheus's own."""

import prometheus_client
from prometheus_client import CollectorRegistry, generate_latest

from controlplane.metrics.making import PREFIX, Maker

BOUNDS = (0.001, 0.5, 1, 30)


def test_histogram_is_scraped_as_prometheus_formats_it() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    about = ("wait_seconds", "Seconds of a wait.", "kind")
    made = Maker(ours).histogram(*about, buckets=BOUNDS)
    name, text, label = about
    expected = prometheus_client.Histogram(
        f"{PREFIX}_{name}", text, [label], registry=theirs, buckets=BOUNDS
    )
    observed = {"short": (0, 0.001, 0.0011), "long": (1, 30, 30.5, 1e9), "none": ()}
    for kind, values in observed.items():
        own, other = made.labels(kind), expected.labels(kind)
        for value in values:
            own.observe(value)
            other.observe(value)
    assert generate_latest(ours) == generate_latest(theirs)
