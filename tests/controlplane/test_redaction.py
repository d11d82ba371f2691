"""What is cut out of the log."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from controlplane import tokens
from controlplane.redaction import REDACTED, RedactingFormatter, cut_out, redact

TOKEN = tokens.mint()
ID, SECRET = TOKEN.text.split("_")[1:]


def logged(message: str, *args: object, error: BaseException | None = None) -> str:
    """Log once and give what is written."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RedactingFormatter("%(levelname)s %(name)s %(message)s"))
    record = logging.LogRecord("x", 20, __file__, 1, message, args, None)
    if error is not None:
        record.exc_info = (type(error), error, error.__traceback__)
    handler.handle(record)
    return stream.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        TOKEN.text,
        f"cannot find session '{TOKEN.text}'",
        f"/session?token={TOKEN.text}&a=b",
        f"{TOKEN.text}{TOKEN.text}",
        TOKEN.text.upper(),
        TOKEN.text.replace("_", "%5F"),
        TOKEN.text[:-1] + ("0" if TOKEN.text[-1] != "0" else "1"),
        TOKEN.text[:50],
    ],
    ids=["plain", "quoted", "query", "twice", "upper", "escaped", "mistyped", "cut off"],
)
def test_the_secret_of_a_token_goes_and_its_id_stays(text: str) -> None:
    for found in (redact(text), logged("%s", text), logged(text)):
        assert SECRET[:20] not in found.lower()
        assert ID in found.lower()
        assert REDACTED in found


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abc.def",
        "{'Authorization': 'Basic abc.def'}",
        "(b'authorization', b'BEARER  abc.def')",
    ],
)
def test_credentials_go_with_the_header_that_names_them(text: str) -> None:
    assert "abc" not in redact(text)
    assert "uthorization" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "bearer token incorrect",
        "authorization of basic things",
        pytest.param(f"sha256:{SECRET[:64]}", id="digest"),
        "ty_of_match",
        pytest.param(f"ty_{ID}", id="id"),
    ],
)
def test_nothing_else_goes(text: str) -> None:
    assert redact(text) == text


def test_a_traceback_is_redacted_and_keeps_its_lines() -> None:
    try:
        int(TOKEN.text)
    except ValueError as error:
        found = logged("failed", error=error)
    assert "\n    Traceback (most recent call last):\n" in found
    assert f"ty_{ID}_{REDACTED}" in found
    assert SECRET[:20] not in found


def test_nobody_forges_a_line() -> None:
    found = logged("%s", "a\nERROR x forged\r\x1b[2J\x85\u2028")
    assert found == "INFO x a\\nERROR x forged\\r\\x1b[2J\\x85\\u2028\n"


@pytest.mark.parametrize("before", ["a\n", "a\r", "a\r\n", "a\x85", "a\u2028", "a\x1b[2J", ""])
def test_a_traceback_forges_no_line(before: str) -> None:
    forged = "ERROR x forged"
    found = logged("failed", error=ValueError(before + forged))
    first, *more = found.removesuffix("\n").splitlines()
    assert first == "INFO x failed"
    assert all(line.startswith("    ") for line in more)
    assert forged in more[-1]
    assert found.replace("\n", "").isprintable()


def test_a_stack_forges_no_line() -> None:
    record = logging.LogRecord(
        "x", 20, __file__, 1, "m", (), None, sinfo=f"at\nERROR {TOKEN.text}"
    )
    assert RedactingFormatter().format(record) == f"m\n    at\n    ERROR ty_{ID}_{REDACTED}"


def test_a_traceback_that_another_formatter_left_is_not_taken() -> None:
    record = logging.LogRecord("x", 20, __file__, 1, "m", (), None)
    record.exc_info = (ValueError, ValueError("ours"), None)
    record.exc_text = "theirs"
    assert RedactingFormatter().format(record) == "m\n    ValueError: ours"
    assert record.exc_text == "theirs"


def test_an_end_of_a_line_does_not_part_credentials_from_their_header() -> None:
    assert "abc" not in logged("Authorization:\nBearer abc.def")


def test_other_handlers_get_the_record_as_it_was() -> None:
    record = logging.LogRecord("x", 20, __file__, 1, "%s", (TOKEN.text,), None)
    RedactingFormatter().format(record)
    assert record.args == (TOKEN.text,)
    assert sys.exc_info() == (None, None, None)


@pytest.mark.parametrize(
    ("secret", "text", "told"),
    [
        ("abcdefghijkl", "b'x abcdefghij", "b'x [redacted]"),  # where aiohttp breaks off
        ("abcdefghijkl", "abcdefghijkl abcdefghijkl.", "[redacted] [redacted]"),
        ("a(b", "x a(b x", "x [redacted] x"),
        ("AbCdEfGhIjKl", "its realm 'abcdefghijkl.example' is", "its realm '[redacted] is"),
        ("correct horse battery", "x correct horse battery x", "x [redacted] x"),
        ("correct horse battery", "x correct horse bat", "x [redacted]"),
        ("a pass-wörd", r"b'a pass-w\xc3\xb6rd' x", "b'[redacted] x"),
        ("wörd of mine", r"b'w\xc3\xb6rd of mine", "b'[redacted]"),
        ("pass/word?", "/x?y=pass%2Fword%3F&z x", "/x?y=[redacted] x"),
        ("", "x", "x"),
    ],
)
def test_a_secret_is_cut_out_however_it_is_quoted(secret: str, text: str, told: str) -> None:
    assert cut_out(secret, text) == told
