"""The load generator detects the end of responses, and wrong responses."""

from collections.abc import Iterator

import pytest

from tests.bench.baseline import CHAIN, EMPTY, INSERT, a_baseline
from tests.bench.load import Ask, run_load, whole_body

HEAD = b"HTTP/1.1 200 OK\r\nServer: x\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (HEAD, None),
        (HEAD + b"Content-Length: 3\r\n\r\nab", None),
        (HEAD + b"Content-Length: 3\r\n\r\nabc", b"abc"),
        (HEAD + b"content-length: 0\r\n\r\n", b""),
        (HEAD + b"\r\n", b""),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", None),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", b"1\r\na\r\n0\r\n\r\n"),
    ],
)
def test_waits_for_the_complete_response(answer: bytes, body: bytes | None) -> None:
    assert whole_body(answer) == body


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with a_baseline() as url:
        yield url


@pytest.mark.parametrize(
    "ask", [Ask("GET", EMPTY, 200), Ask("PUT", INSERT, 200, "{}"), Ask("POST", CHAIN, 201, "{}")]
)
def test_baseline_answers_all_requests(url: str, ask: Ask) -> None:
    load = run_load(url, [ask] * 10, callers=3)
    assert len(load.times) == 10
    assert len(load.bodies) == 10 * (ask.expect == 201)
    assert load.rate == 10 / load.seconds


def test_unexpected_status_is_an_error(url: str) -> None:
    with pytest.raises(RuntimeError, match="404"):
        run_load(url, [Ask("GET", "/elsewhere", 200)], callers=1)
