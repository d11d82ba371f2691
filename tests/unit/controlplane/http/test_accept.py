"""The media type that a client prefers."""

import pytest

from controlplane.http.accept import preferred

OFFERS = ("application/json", "application/x-ndjson", "text/event-stream")
JSON, NDJSON, SSE = OFFERS


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/event-stream", SSE),
        ("Text/Event-Stream; charset=utf-8", SSE),
        ("text/*", SSE),
        ("text/html, */*;q=0.8", JSON),
        ("*/*, text/event-stream", SSE),
        ("text/event-stream, */*;q=0.1", SSE),
        ("application/json;q=0.5, application/x-ndjson;q=0.9", NDJSON),
        ("application/x-ndjson, application/json", JSON),
        ("application/*;q=0.5, text/event-stream;q=0.6", SSE),
        ("*/*;q=0.5, application/json;q=0.1", NDJSON),
        ("application/json;q=0, text/event-stream;q=0.001", SSE),
        ("text/event-stream;q=0", JSON),
        ("text/event-stream;q=2, application/x-ndjson;q=0.5", SSE),
        ("image/png", JSON),
        ("text, ;q=1, /, a/b/c, text/event-stream", SSE),
    ],
)
def test_type_of_the_highest_quality_is_preferred(accept: str, expected: str) -> None:
    assert preferred([accept], OFFERS) == expected


def test_headers_count_together() -> None:
    assert preferred(["application/json;q=0.1", "text/event-stream;q=0.2"], OFFERS) == SSE
    assert preferred([], OFFERS) == JSON
