"""Hand-overs as bytes, also such that no agent makes, and whether an init may accept them."""

import struct
import zlib
from collections.abc import Iterable

from agent.init.messages import MAX_BYTES, MAX_STRINGS

MAGIC = b"TYSTART1"


def raw(
    arguments: Iterable[bytes] = (b"true",),
    variables: Iterable[bytes] = (),
    *,
    mode: int = 0,
    strings: bytes | None = None,
    counts: tuple[int, int] | None = None,
    size: int | None = None,
) -> bytes:
    """Return a hand-over with the right checksum, whatever else is wrong.

    `strings`, `counts` and `size` replace what follows from arguments and variables.
    """
    arguments = list(arguments)
    variables = list(variables)
    if strings is None:
        strings = b"".join(string + b"\0" for string in (*arguments, *variables))
    argument_count, variable_count = counts or (len(arguments), len(variables))
    length = len(strings) if size is None else size
    header = struct.pack("<IIII", mode, argument_count, variable_count, length)
    return MAGIC + header + struct.pack("<I", zlib.crc32(header + strings)) + strings


def flipped(data: bytes, index: int) -> bytes:
    """Change one bit of a byte."""
    changed = bytearray(data)
    changed[index] ^= 1
    return bytes(changed)


def in_place(data: bytes) -> bytes:
    """Return the same hand-over for execution in place, with a checksum that is as right."""
    counts = data[8:24]
    changed = b"\1" + counts[1:]
    crc = int.from_bytes(data[24:28], "little")
    strings = bytes(min(int.from_bytes(counts[12:], "little"), MAX_BYTES))  # any of that length
    crc ^= zlib.crc32(counts + strings) ^ zlib.crc32(changed + strings)
    return (data[:8] + changed + crc.to_bytes(4, "little") + data[28:])[: len(data)]


GOOD = raw([b"true", b"", b"-x"], [b"A=1", b"B=", b"C=="])

ACCEPTED = {
    "strings": GOOD,
    "no variables": raw(),
    "as many arguments as allowed": raw([b"true", *[b"1"] * (MAX_STRINGS - 1)]),
    "as many variables as allowed": raw([b"true"], [b"A=%d" % i for i in range(MAX_STRINGS)]),
    "not UTF-8": raw([b"true", b"\xff\xfe"]),
}

REFUSED = {
    "nothing": b"",
    "half a header": GOOD[:20],
    "no strings": GOOD[:28],
    "half of the strings": GOOD[:-5],
    "all but the last byte": GOOD[:-1],
    "another magic": flipped(GOOD, 7),
    "another mode": raw(mode=2),
    "a mode that exceeds a byte": raw(mode=0x100),
    "no arguments": raw([], [b"A=1"]),
    "too many arguments": raw([b"true"] * (MAX_STRINGS + 1)),
    "too many variables": raw([b"true"], [b"A=1"] * (MAX_STRINGS + 1)),
    "more arguments than any number": raw(counts=(0xFFFFFFFF, 0)),
    "more variables than any number": raw(counts=(1, 0xFFFFFFFF)),
    "too many bytes": raw([b"x" * MAX_BYTES]),
    "more bytes than any number": raw(size=0xFFFFFFFF),
    "fewer strings than counted": raw(counts=(2, 0)),
    "fewer variables than counted": raw([b"true"], [b"A=1"], counts=(1, 2)),
    "more strings than counted": raw([b"true", b"x"], counts=(1, 0)),
    "more variables than counted": raw([b"true"], [b"A=1", b"B=1"], counts=(1, 1)),
    "no strings at all": raw(strings=b""),
    "last string without its end": raw(strings=b"true"),
    "last variable without its end": raw(strings=b"true\0A=1", counts=(1, 1)),
    "bytes after the strings": raw(strings=b"true\0\0"),
    "a variable without a value": raw([b"true"], [b"A"]),
    "a variable without a name": raw([b"true"], [b"=1"]),
    "an empty variable": raw([b"true"], [b""]),
    "a bit of the counts": flipped(raw(counts=(1, 0)), 16),
    "a bit of the checksum": flipped(GOOD, 24),
    "a bit of the strings": flipped(GOOD, 29),
    "two that are mixed": GOOD[:30] + GOOD[:30] + GOOD[30:],
    "strings of another": raw([b"true", b"1"])[:28] + raw([b"true", b"2"])[28:],
}

REFUSED_IN_PLACE = {
    name: in_place(data) for name, data in REFUSED.items() if data[8:12] == bytes(4)
}
