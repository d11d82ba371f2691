"""The header `traceparent`, as W3C Trace Context defines it."""

import pytest

from tiltyard.agent.traces import read_traceparent, trace_id_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{PARENT}-01"


def test_valid_one_is_kept() -> None:
    assert read_traceparent([GOOD]) == GOOD
    assert read_traceparent([f" {GOOD}\t"]) == GOOD
    assert trace_id_of(GOOD) == TRACE


def test_later_version_is_passed_on_as_version_00() -> None:
    for later in (f"01-{TRACE}-{PARENT}-03", f"fe-{TRACE}-{PARENT}-03-what-comes"):
        assert read_traceparent([later]) == GOOD


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        [GOOD, GOOD],
        [GOOD.upper()],
        [f"{GOOD}-more"],
        [f"01-{TRACE}-{PARENT}-01.more"],
        [f"ff-{TRACE}-{PARENT}-01"],
        [f"00-{'0' * 32}-{PARENT}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"00-{TRACE}-{PARENT}"],
        [f"00-{TRACE}-{PARENT}-1"],
        [f"00-{TRACE}-{PARENT}-0x"],
        [f"00_{TRACE}_{PARENT}_01"],
        ["00-" + "\u0661" * 32 + f"-{PARENT}-01"],
    ],
    ids=str,
)
def test_invalid_one_is_ignored(values: list[str]) -> None:
    assert read_traceparent(values) == ""
    assert trace_id_of("") == ""
