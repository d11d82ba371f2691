"""Messages of an agent and the first process of a container: hand-overs and reports. Pure.

`handover.h` describes the bytes of a hand-over, `reaper.h` the lines of reports.
"""

import enum
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiltyard.ends import Limit

MAX_STRINGS = 16_384  # Arguments, and variables
MAX_BYTES = 2 * 1024 * 1024
"""All strings of a hand-over, each with a NUL."""
MAX_LINE = 64  # Bytes of a report, with its newline
WAIT_FOR_ALL = 33
"""Signal that makes a first process outlive its program until all processes have ended.

C libraries keep it for their threads, so that no program is sent it or waits for it."""

_MAGIC = b"TYSTART1"
_COUNTS = struct.Struct("<IIII")  # Mode, arguments, variables, bytes of all strings
_CHECKSUM = struct.Struct("<I")


class HandOverError(ValueError):
    """A program that cannot be handed over; the text says why."""


class Cause(enum.Enum):
    """Why a program was not executed."""

    MISSING = "missing"
    INTERPRETER = "interpreter"  # The file is there, and the program that it needs is not
    PERMISSION = "permission"
    ARCHITECTURE = "architecture"
    LENGTH = "length"
    RESOURCES = "resources"
    HAND_OVER = "handover"  # The hand-over was broken
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The first process waits for a hand-over."""


@dataclass(frozen=True, slots=True)
class Executed:
    """The program runs."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was executed. `errno`: the kernel's number of the error."""

    errno: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Ended:
    """The program has ended. `status`: as of wait(2); `time_ns`: of the wall clock.

    `limits_met`: limits of the container that were met until then.
    """

    status: int
    time_ns: int
    limits_met: tuple[Limit, ...] = ()


Report = Waiting | Executed | Refused | Ended


def encode(program: Sequence[str], env: Mapping[str, str], *, in_place: bool = False) -> bytes:
    """Return the hand-over of a program with its arguments and variables.

    `in_place`: the program takes the place of the first process.

    Raises:
        HandOverError: The first process would refuse it.
    """
    arguments = [_encoded(argument) for argument in program]
    variables = [_encoded(f"{name}={value}") for name, value in env.items()]
    if not arguments:
        raise HandOverError("cannot hand over a program: it has no name")
    if max(len(arguments), len(variables)) > MAX_STRINGS:
        raise HandOverError(f"cannot hand over a program: more than {MAX_STRINGS} strings")
    if any(not name or "=" in name for name in env):
        raise HandOverError("cannot hand over a program: a variable has an invalid name")
    strings = b"".join(string + b"\0" for string in (*arguments, *variables))
    if len(strings) > MAX_BYTES:
        raise HandOverError(f"cannot hand over a program: more than {MAX_BYTES} bytes")
    counts = _COUNTS.pack(int(in_place), len(arguments), len(variables), len(strings))
    return _MAGIC + counts + _CHECKSUM.pack(zlib.crc32(counts + strings)) + strings


def _encoded(string: str) -> bytes:
    try:
        encoded = string.encode()
    except UnicodeEncodeError:
        raise HandOverError("cannot hand over a program: a string is not Unicode") from None
    if b"\0" in encoded:
        raise HandOverError("cannot hand over a program: a string contains NUL")
    return encoded


class Reports:
    """Parses reports as they arrive; they are the word of an untrusted container.

    Malformed lines are skipped. It keeps at most MAX_LINE bytes.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_skipping = False

    def feed(self, data: bytes) -> list[Report]:
        """Return the reports that `data` completes."""
        *lines, rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            report = None if self._is_skipping else _parsed(line)
            self._is_skipping = False
            if report is not None:
                found.append(report)
        self._is_skipping = self._is_skipping or len(rest) >= MAX_LINE
        self._rest = b"" if self._is_skipping else rest
        return found


_REFUSED = re.compile(rb"refused ([1-9][0-9]{0,3}) ([a-z]{1,16})")
_ENDED = re.compile(rb"ended (0|[1-9][0-9]{0,4}) ([1-9][0-9]{0,18})( pids)?( shm)?")
_CAUSES = {cause.value.encode(): cause for cause in Cause}


def _parsed(line: bytes) -> Report | None:
    if line == b"waiting":
        return Waiting()
    if line == b"executed":
        return Executed()
    refused = _REFUSED.fullmatch(line)
    if refused is not None and refused[2] in _CAUSES:
        return Refused(int(refused[1]), _CAUSES[refused[2]])
    ended = _ENDED.fullmatch(line)
    if ended is not None and is_end(int(ended[1])):
        met = {Limit.PIDS: ended[3], Limit.SHM: ended[4]}
        return Ended(int(ended[1]), int(ended[2]), tuple(limit for limit in met if met[limit]))
    return None


def is_end(status: int) -> bool:
    """Return whether a wait status is that of an ended process, with an exit code or a signal."""
    if not 0 <= status < 0x10000:
        return False
    signal = status & 0x7F
    if signal == 0:
        return status & 0x80 == 0
    return signal != 0x7F and status < 0x100
