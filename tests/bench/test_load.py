"""The load generator detects the end of responses, and wrong responses."""

import pytest

from tests.bench.baseline import a_baseline
from tests.bench.load import Ask, run_load
from tests.bench.load_process import whole_body

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


def test_unexpected_status_is_an_error() -> None:
    with a_baseline() as url, pytest.raises(RuntimeError, match="404"):
        run_load(url, [Ask("GET", "/elsewhere", 200)], callers=1)
