"""Strict parser and writer of tar headers, USTAR and PAX."""

from dataclasses import dataclass, replace

from agent.domain.errors import UnreadableTarError

BLOCK_BYTES = 512
FILE = b"0"
HARD_LINK = b"1"
SYMBOLIC_LINK = b"2"
FOLDER = b"5"
DEVICES = frozenset({b"3", b"4", b"6"})
"""Character devices, block devices, FIFOs; Docker itself omits sockets."""
PAX = b"x"
_KINDS = DEVICES | {FILE, HARD_LINK, SYMBOLIC_LINK, FOLDER, PAX}
_WITH_CONTENT = frozenset({FILE, PAX})

_PERMISSIONS = 0o777
_LARGEST_TIME = 8**11 - 1  # The largest time in a header, in Unix seconds: the year 2242
_LARGEST_OWNER = 8**7 - 1  # The largest uid and gid in a header
_LONGEST_NUMBER = 20  # Digits of 2**64
_SHORT_NAME = 100


@dataclass(slots=True)
class Header:
    """The fields kept of an entry. `time`: Unix seconds, `size`: bytes of content."""

    kind: bytes
    name: bytes
    link: bytes
    mode: int
    uid: int
    gid: int
    size: int
    time: int


def parse_header(block: bytes, attributes: dict[bytes, bytes]) -> Header:
    """Parse a header with its preceding PAX attributes; UnreadableTarError if malformed."""
    kind = block[156:157]
    if kind not in _KINDS or block[257:263] != b"ustar\0":
        raise UnreadableTarError("it has an entry of a kind that the engine does not write")
    if _octal(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * ord(" "):
        raise UnreadableTarError("the checksum of a header is wrong")
    name = _text(block[:100])
    prefix = _text(block[345:500])
    header = Header(
        kind=kind,
        name=b"%s/%s" % (prefix, name) if prefix else name,
        link=_text(block[157:257]),
        mode=_octal(block[100:108]) & _PERMISSIONS,
        uid=_octal(block[108:116]),
        gid=_octal(block[116:124]),
        size=_octal(block[124:136]),
        time=_octal(block[136:148]),
    )
    if attributes:
        _apply(header, attributes)
    if header.size and kind not in _WITH_CONTENT:
        raise UnreadableTarError("an entry other than a file has content")
    return header


def parse_pax(data: bytes | bytearray) -> dict[bytes, bytes]:
    """Parse the records of a PAX header: `<length> <key>=<value>` and a newline."""
    found = {}
    begin = 0
    while begin < len(data):
        digits, _, _ = bytes(data[begin : begin + _LONGEST_NUMBER]).partition(b" ")
        end = begin + _decimal(digits)
        key, sign, value = bytes(data[begin + len(digits) + 1 : end - 1]).partition(b"=")
        if not sign or data[end - 1 : end] != b"\n":
            raise UnreadableTarError("its attributes are malformed")
        if key.startswith(b"GNU.sparse"):
            raise UnreadableTarError("it has a file with holes, which the engine does not write")
        found[key] = value
        begin = end
    return found


def render(header: Header, number: int) -> bytes:
    """Write a header, after a PAX header if needed; `number` is for readers without PAX."""
    attributes = {}
    # One byte is left for the slash of a folder.
    if len(header.name) >= _SHORT_NAME or not header.name.isascii():
        attributes[b"path"] = header.name
    if len(header.link) > _SHORT_NAME or not header.link.isascii():
        attributes[b"linkpath"] = header.link
    for key, owner in ((b"uid", header.uid), (b"gid", header.gid)):
        if owner > _LARGEST_OWNER:
            attributes[key] = b"%d" % owner
    if not attributes:
        return _block(header)
    records = b"".join(_record(key, value) for key, value in attributes.items())
    before = Header(PAX, b"././@PaxHeader", b"", 0o644, 0, 0, len(records), 0)
    short = replace(
        header,
        name=b"pax-%06d" % number if b"path" in attributes else header.name,
        link=b"" if b"linkpath" in attributes else header.link,
        uid=min(header.uid, _LARGEST_OWNER),
        gid=min(header.gid, _LARGEST_OWNER),
    )
    return b"".join((_block(before), records, bytes(-len(records) % BLOCK_BYTES), _block(short)))


def _apply(header: Header, attributes: dict[bytes, bytes]) -> None:
    if any(b"\0" in attributes.get(key, b"") for key in (b"path", b"linkpath")):
        raise UnreadableTarError("a name contains NUL")
    header.name = attributes.get(b"path", header.name)
    header.link = attributes.get(b"linkpath", header.link)
    for key in (b"size", b"uid", b"gid"):
        if key in attributes:
            setattr(header, key.decode(), _decimal(attributes[key]))
    if b"mtime" in attributes:
        seconds, _, _ = attributes[b"mtime"].partition(b".")
        early = seconds.startswith(b"-")
        header.time = 0 if early else min(_decimal(seconds), _LARGEST_TIME)


def _block(header: Header) -> bytes:
    name = header.name + b"/" if header.kind == FOLDER else header.name
    block = b"%s%07o\0%07o\0%07o\0%011o\0%011o\0        %s%sustar\00000" % (
        name.ljust(100, b"\0"),
        header.mode,
        header.uid,
        header.gid,
        header.size,
        header.time,
        header.kind,
        header.link.ljust(100, b"\0"),
    )
    return (b"%s%06o\0 %s" % (block[:148], sum(block), block[156:])).ljust(BLOCK_BYTES, b"\0")


def _record(key: bytes, value: bytes) -> bytes:
    """One record of a PAX header, whose length counts its own digits."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    if len(str(length)) + rest != length:
        length += 1
    return b"%d %s=%s\n" % (length, key, value)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise UnreadableTarError("a number in a header is malformed")
    return int(digits, 8)


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > _LONGEST_NUMBER:
        raise UnreadableTarError("a number among its attributes is malformed")
    return int(digits)
