import logging

import pytest

from controlplane.domain.access import tokens
from controlplane.domain.access.redaction import cut_out
from tiltyard.runtime.logging.line import REDACTED, redact
from tiltyard.runtime.logging.output import LineFormatter

TOKEN = tokens.mint()
ID, SECRET = TOKEN.text.split("_")[1:]


def logged(message: str, *args: object) -> str:
    """Return the log line of a foreign logger's record."""
    record = logging.LogRecord("x", 20, __file__, 1, message, args, None)
    return LineFormatter("logfmt", journald=False).format(record)


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
def test_the_secret_of_a_token_is_redacted_and_its_id_kept(text: str) -> None:
    for found in (redact(text), logged("%s", text), logged(text)):
        assert SECRET[:20] not in found.lower()
        assert ID in found.lower()
        assert REDACTED in found


@pytest.mark.parametrize(
    "text",
    [
        "bearer token incorrect",
        "insufficient_scope: authorization failed; authorization of basic things",
        f"sha256:{SECRET[:64]}",
        "ty_of_match",
        f"ty_{ID}",
    ],
    ids=["bearer", "authorization", "digest", "name", "id"],
)
def test_other_text_is_not_redacted(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("secret", "text", "redacted"),
    [
        ("abcdefghijkl", "b'x abcdefghij", "b'x [redacted]"),  # truncated as by aiohttp
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
def test_a_secret_is_redacted_however_it_is_quoted(secret: str, text: str, redacted: str) -> None:
    assert cut_out(secret, text) == redacted
