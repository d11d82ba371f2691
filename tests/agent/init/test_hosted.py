"""The parser and the decisions of the init with a C library and sanitizers, also at random."""

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.init.binary import PATH
from agent.init.messages import MAX_LINE, Cause, Ended, Refused, Report, Reports, is_end
from tests.agent.init.signals import ENDS_NO_WAIT, NOT_FORWARDED
from tests.support.agent.handovers import (
    ACCEPTED,
    GOOD,
    REFUSED,
    REFUSED_IN_PLACE,
    in_place,
    raw,
)
from tiltyard.ends import Limit

FUZZED = 300_000  # Hand-overs: three seconds on a quiet machine
_SOURCES = PATH.parents[1]
_COMPILE = (
    "gcc",
    "-std=gnu17",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    f"-I{_SOURCES}",
)
_TIMEOUT = 120.0
_EXIT_CODES = {
    Cause.MISSING: 127,
    Cause.INTERPRETER: 127,
    Cause.HAND_OVER: 125,
    Cause.RESOURCES: 125,
}


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("hosted") / "hosted"
    pure = [_SOURCES / name for name in ("handover.c", "passwd.c", "reaper.c")]
    own = Path(__file__).with_name("hosted.c")
    subprocess.run([*_COMPILE, "-o", program, own, *pure], check=True, timeout=_TIMEOUT)
    return program


def run(program: Path, *arguments: str, given: bytes = b"") -> str:
    done = subprocess.run(
        [program, *arguments],
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=_TIMEOUT,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")
    return done.stdout.decode(errors="surrogateescape")


def decided(hosted: Path, kind: str) -> list[list[str]]:
    lines = [line.split() for line in run(hosted, "decide").splitlines()]
    return [line[1:] for line in lines if line[0] == kind]


def reported(words: Sequence[str]) -> list[Report]:
    line = (" ".join(words) + "\n").encode()
    assert len(line) <= MAX_LINE
    return Reports().feed(line)


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED)
def test_accepts_valid_handovers(hosted: Path, data: bytes) -> None:
    assert run(hosted, "parse", given=data).startswith("as a child\nargument true\n")
    assert run(hosted, "parse", given=in_place(data)).startswith("in place\nargument true\n")


def test_parses_strings(hosted: Path) -> None:
    assert run(hosted, "parse", given=GOOD).splitlines() == [
        "as a child",
        "argument true",
        "argument ",
        "argument -x",
        "variable A=1",
        "variable B=",
        "variable C==",
    ]


def test_reads_no_further_than_its_strings(hosted: Path) -> None:
    assert run(hosted, "parse", given=GOOD + raw([b"second"])) == run(hosted, "parse", given=GOOD)


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_refuses_broken_handovers(hosted: Path, data: bytes) -> None:
    assert run(hosted, "parse", given=data) == "refused\n"


@pytest.mark.parametrize("data", REFUSED_IN_PLACE.values(), ids=REFUSED_IN_PLACE)
def test_refuses_broken_handovers_in_place(hosted: Path, data: bytes) -> None:
    assert run(hosted, "parse", given=data) == "refused\n"


def test_parses_what_comes_at_random(hosted: Path) -> None:
    seed = random.randrange(2**32)
    output = run(hosted, "fuzz", str(seed), str(FUZZED))
    accepted, _, count, _ = output.split()
    assert int(count) == FUZZED
    assert FUZZED / 10 < int(accepted) < FUZZED / 2, f"seed {seed}"


def test_knows_which_signals_to_forward_and_which_end_the_wait(hosted: Path) -> None:
    rows = [[int(word) for word in line] for line in decided(hosted, "signal")]
    assert [row[0] for row in rows] == list(range(1, 65))
    assert {number for number, is_forwarded, _ in rows if not is_forwarded} == NOT_FORWARDED
    assert {number for number, _, ends in rows if not ends} == NOT_FORWARDED | ENDS_NO_WAIT


def test_exit_code_stands_for_each_end(hosted: Path) -> None:
    rows = [[int(word) for word in line] for line in decided(hosted, "status")]
    assert [status for status, _ in rows] == list(filter(is_end, range(0x10000)))
    for status, code in rows:
        exact = os.waitstatus_to_exitcode(status)
        assert code == (exact if exact >= 0 else 128 - exact)


def test_each_error_has_a_report_and_an_exit_code(hosted: Path) -> None:
    rows = decided(hosted, "error")
    assert len(rows) == 133 * 4
    causes = set()
    for number, (_, code, *line) in enumerate(rows):
        [refused] = reported(line)
        assert isinstance(refused, Refused)
        assert refused.errno == 1 + number // 4
        assert int(code) == _EXIT_CODES.get(refused.cause, 126)
        causes.add(refused.cause)
    assert causes == set(Cause)


def test_report_of_an_end_keeps_to_its_bounds(hosted: Path) -> None:
    [longest] = decided(hosted, "longest")
    assert longest == ["ended", str(2**32 - 1), str(2**64 - 1), "pids", "shm"]
    [shortest] = decided(hosted, "shortest")
    assert shortest == ["ended", "0", "0"]
    assert reported(["ended", "768", "1"]) == [Ended(768, 1)]
    assert reported(["ended", "768", "1", "shm"]) == [Ended(768, 1, (Limit.SHM,))]
    assert reported(["ended", "768", "1", "pids"]) == [Ended(768, 1, (Limit.PIDS,))]
    assert reported(["ended", "768", "1", "shm", "pids"]) == []


@pytest.mark.parametrize(
    ("user", "passwd", "found"),
    [
        (0, b"root:x:0:0:root:/root:/bin/sh\n", True),
        (4711, b"root:x:0:0:root:/root:/bin/sh\ngame:x:4711:4711::/:\n", True),
        (4711, b"root:x:0:0:root:/root:/bin/sh\ngame:x:47110:4711::/:\n", False),
        (4711, b"4711:4711:1:4711:4711:/4711:4711\n", False),
        (4711, b"game:x:4711", True),
        (4711, b"\n\ngame:x:0004711\n", True),
        (4711, b"game:x:4711a:\n", False),
        (4711, b"game:x:-4711:\n", False),
        (415, b"game:x:4294967711:\n", False),
        (4294967294, b"nobody:x:4294967294:\n", True),
        (0, b"", False),
        (0, b"root\n:::\nroot:x:\nroot:x::0\n", False),
    ],
)
def test_finds_the_entry_of_a_user(hosted: Path, user: int, passwd: bytes, *, found: bool) -> None:
    expected = "found\n" if found else "none\n"
    assert run(hosted, "passwd", str(user), given=passwd) == expected
