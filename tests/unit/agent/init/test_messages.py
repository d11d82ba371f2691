import struct
import zlib
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.init.messages import (
    MAX_BYTES,
    MAX_LINE,
    MAX_STRINGS,
    Cause,
    Ended,
    Executed,
    HandOverError,
    Refused,
    Report,
    Reports,
    Waiting,
    encode,
    is_end,
)


def test_encodes_header_and_strings() -> None:
    data = encode(["/game", "-x", ""], {"A": "1=2", "ÄÖ": ""})
    strings = b"/game\0-x\0\0A=1=2\0" + "ÄÖ=\0".encode()
    counts = struct.pack("<IIII", 0, 3, 2, len(strings))
    assert data == b"TYSTART1" + counts + struct.pack("<I", zlib.crc32(counts + strings)) + strings


def test_mode_tells_whether_to_execute_in_place() -> None:
    assert encode(["game"], {})[8:12] == b"\0\0\0\0"
    assert encode(["game"], {}, in_place=True)[8:12] == b"\1\0\0\0"


@pytest.mark.parametrize(
    ("program", "env", "text"),
    [
        ([], {}, "it has no name"),
        (["a\0b"], {}, "a string contains NUL"),
        (["a"], {"A": "\0"}, "a string contains NUL"),
        (["a"], {"": "1"}, "a variable has an invalid name"),
        (["a"], {"A=B": "1"}, "a variable has an invalid name"),
        (["\ud800"], {}, "a string is not Unicode"),
        ([""] * (MAX_STRINGS + 1), {}, f"more than {MAX_STRINGS} strings"),
        (["a"], {f"A{i}": "" for i in range(MAX_STRINGS + 1)}, f"more than {MAX_STRINGS} strings"),
        (["a" * MAX_BYTES], {}, f"more than {MAX_BYTES} bytes"),
    ],
)
def test_refuses_what_the_first_process_would_refuse(
    program: Sequence[str], env: Mapping[str, str], text: str
) -> None:
    with pytest.raises(HandOverError, match=text):
        encode(program, env)


def test_bounds_themselves_are_allowed() -> None:
    assert encode([""] * MAX_STRINGS, {f"A{i}": "" for i in range(MAX_STRINGS)})
    assert encode(["a" * (MAX_BYTES - 1)], {})


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (b"waiting", Waiting()),
        (b"executed", Executed()),
        (b"refused 2 missing", Refused(2, Cause.MISSING)),
        (b"refused 13 permission", Refused(13, Cause.PERMISSION)),
        (b"refused 71 handover", Refused(71, Cause.HAND_OVER)),
        (b"ended 0 1", Ended(0, 1)),
        (b"ended 256 1795908374368014326", Ended(256, 1795908374368014326)),
        (b"ended 139 2", Ended(139, 2)),
    ],
)
def test_parses_reports(line: bytes, report: Report) -> None:
    assert Reports().feed(line + b"\n") == [report]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" waiting",
        b"waiting ",
        b"waiting\r",
        b"Executed",
        b"executed 1",
        b"refused 2",
        b"refused 0 missing",
        b"refused 02 missing",
        b"refused -2 missing",
        b"refused 2 lost",
        b"refused 99999 missing",
        b"refused 2  missing",
        b"ended 0",
        b"ended 0 0",
        b"ended 0 01",
        b"ended -1 1",
        b"ended 00 1",
        b"ended 65536 1",
        b"ended 127 1",
        b"ended 128 1",
        b"ended 265 1",
        b"ended 0 1.5",
        "ended ٣ 1".encode(),
        b"ended 0 99999999999999999999",
        b"\xff\xfe",
        b"executed" + b" " * MAX_LINE,
    ],
)
def test_skips_malformed_reports(line: bytes) -> None:
    assert Reports().feed(line + b"\nexecuted\n") == [Executed()]


def test_report_may_arrive_in_parts() -> None:
    reports = Reports()
    assert reports.feed(b"wait") == []
    assert reports.feed(b"ing\nexec") == [Waiting()]
    assert reports.feed(b"") == []
    assert reports.feed(b"uted\n") == [Executed()]


def test_line_without_an_end_is_skipped_and_not_kept() -> None:
    reports = Reports()
    for _ in range(100):
        assert reports.feed(b"x" * 4096) == []
    assert reports.feed(b"") == []
    assert reports.feed(b"executed\n") == []  # the end of the same line
    assert reports.feed(b"executed\n") == [Executed()]


@given(st.lists(st.binary(max_size=80)))
def test_never_fails_and_splits_do_not_matter(parts: list[bytes]) -> None:
    reports = Reports()
    in_parts = [report for part in parts for report in reports.feed(part)]
    at_once = Reports().feed(b"".join(parts))
    assert in_parts == at_once


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (0, True),
        (255 << 8, True),
        (256 << 8, False),
        (9, True),
        (126, True),
        (11 | 0x80, True),
        (0x7F, False),  # stopped
        (0x137F, False),
        (0xFFFF, False),  # continued
        (0x80, False),
        (0x109, False),
        (-1, False),
    ],
)
def test_knows_statuses_of_ends(status: int, *, ended: bool) -> None:
    assert is_end(status) is ended
