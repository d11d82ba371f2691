import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.log_lines import read
from tests.support.read_back import FORMS, TOKEN, Pipe, failing, log, said
from tiltyard.runtime.logging.line import (
    CUT,
    EXCEPTION,
    MOST_CHARACTERS,
    MOST_OF_A_TRACEBACK,
    REDACTED,
    Form,
    line,
    redact,
)
from tiltyard.runtime.logging.output import LineFormatter, LineWriter

HOSTILE = (
    "a\nlevel=error event=forged",
    'a" level="error" event="forged',
    "a\\",
    'a\\" level=error',
    "{}[]=,",
    "",
    " ",
    "null",
    "\r\x1b[2J\x1b]0;title\x07",
    "\x00",
    "\x85\u2028\u2029\v\f\x1c\x1d\x1e",
    "\u202eabc\u2066def\u200f",
    "\ud800",
    "\N{CANCEL TAG}\N{VARIATION SELECTOR-256}",
)

any_text = st.one_of(st.text(st.characters(), max_size=200), st.sampled_from(HOSTILE))


@pytest.mark.parametrize("form", FORMS)
@given(event=any_text, fields=st.dictionaries(st.sampled_from(("id", "error", "path")), any_text))
def test_untrusted_text_stays_in_its_field(form: Form, event: str, fields: dict[str, str]) -> None:
    written_line = line({"level": "info", "event": event, **fields}, form)
    assert written_line.isprintable()
    assert len(written_line.splitlines()) == 1
    assert read(written_line, form) == {"level": "info", "event": event, **fields}


@pytest.mark.parametrize("form", FORMS)
@given(text=any_text)
def test_library_loggers_cannot_forge_fields(form: Form, text: str) -> None:
    record = logging.LogRecord("lib", 30, "x.py", 1, "got %s", (text,), None)
    found = LineFormatter(form, journald=False).format(record)
    assert found.isprintable()
    fields = read(found, form)
    assert set(fields) == {"time", "level", "event", "logger"}
    assert fields["event"] == f"got {text}"[:MOST_CHARACTERS]
    assert fields["level"] == "warning"
    assert fields["logger"] == "lib"


@pytest.mark.parametrize("form", FORMS)
def test_traceback_is_a_field_of_the_same_line(form: Form) -> None:
    [found] = said(failing, form)
    trace = found[EXCEPTION]
    assert trace.startswith("Traceback (most recent call last):\n")
    assert "ValueError: invalid literal for int() with base 10: 'x\\nlevel=error" in trace
    assert trace.endswith("OSError: y\n")
    assert TOKEN not in trace
    assert found["level"] == "error"
    assert found["event"] == "it failed"


def test_keeps_the_end_of_a_long_traceback() -> None:
    def fail() -> None:
        raise ValueError("x" * MOST_OF_A_TRACEBACK + "the end")

    def log_failure() -> None:
        try:
            fail()
        except ValueError:
            log.exception("it failed")

    [found] = said(log_failure)
    assert found[EXCEPTION].startswith(CUT)
    assert found[EXCEPTION].endswith("the end\n")
    assert len(found[EXCEPTION]) == len(CUT) + MOST_OF_A_TRACEBACK


def test_truncates_long_values() -> None:
    [found] = said(lambda: log.info("it came", error="x" * 10**6))
    assert found["error"] == "x" * MOST_CHARACTERS + CUT


@pytest.mark.parametrize(
    ("value", "logfmt", "in_json"),
    [
        (True, "true", True),
        (None, "null", None),
        (7, "7", 7),
        (0.12345, "0.123", 0.123),
        (float("nan"), "nan", "nan"),
        ([1, "b c"], "1, b c", "1, b c"),
        ({"a": (1, 2)}, "a: 1, 2", "a: 1, 2"),
        (Path("/x"), "/x", "/x"),
    ],
)
def test_formats_other_types(value: object, logfmt: str, in_json: object) -> None:
    [found] = said(lambda: log.info("it came", value=value))
    assert found["value"] == logfmt
    [found] = said(lambda: log.info("it came", value=value), "json")
    assert found["value"] == in_json


def test_value_that_cannot_be_formatted_does_not_lose_the_line() -> None:
    class Shy:
        def __str__(self) -> str:
            raise RuntimeError("no")

    found = line({"event": "it came", "value": Shy()}, "logfmt")
    assert found == 'event="it came" value="cannot be written: RuntimeError"'
    pipe = Pipe()
    writer = LineWriter(pipe.theirs, LineFormatter("logfmt", journald=False))
    writer.handle(logging.LogRecord("lib", 30, "x.py", 1, "%d of %s", ("two",), None))
    writer.close()
    os.close(pipe.theirs)
    [found] = pipe.lines()
    assert found.endswith('level=warning event="a record cannot be written" logger=lib')


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "value",
    [
        TOKEN,
        f"x{TOKEN.upper()}y",
        TOKEN.replace("_", "%5F"),
        ["a", TOKEN],
        {"deep": [{"er": TOKEN}]},
        ["Authorization:\nBearer " + TOKEN[20:]],
        f"{{'X-Registry-Auth': '{TOKEN[20:]}'}}",
        f"(b'X-Registry-Auth', b'{TOKEN[20:]}')",
        ValueError(TOKEN),
        "x" * (MOST_CHARACTERS - 30) + TOKEN,
    ],
)
def test_redacts_secrets_in_every_value(form: Form, value: object) -> None:
    [found] = said(lambda: log.info("it came", error=value), form)
    assert TOKEN[20:40] not in found["error"].lower()
    assert REDACTED in found["error"]


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abc.def",
        "{'Authorization': 'Basic abc.def'}",
        "(b'authorization', b'BEARER  abc.def')",
    ],
)
def test_redacts_credentials_after_the_name_of_their_header(text: str) -> None:
    redacted = redact(text)
    assert "abc" not in redacted
    assert "uthorization" in redacted


@given(text=any_text, before=st.text(max_size=5), after=st.text(max_size=5))
def test_secret_in_any_field_is_redacted(text: str, before: str, after: str) -> None:
    fields = {"event": text, "error": f"{before} {TOKEN} {after}", "path": text}
    for form in FORMS:
        assert TOKEN not in line(fields, form)
