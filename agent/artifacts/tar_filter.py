"""Filter the engine's tar of a path so that it is safe to unpack. Pure.

The program in a container controls the tree. Docker writes USTAR and PAX with Go's `archive/tar`,
folders before their content; anything else is rejected, so that no two readers of tar interpret an
entry differently. Every header is rewritten:

- names are relative, begin with the path's last component (`./` for `/`) and keep their bytes; if
  the path is a link, the engine names its target instead
- files, folders, symbolic and hard links stay; devices, FIFOs and hard links to them are dropped
- symbolic links keep their target, and no entry lies below one; hard links lead to earlier entries
- only the lowest nine bits of the mode, numeric owners and no other PAX attributes are kept
"""

from dataclasses import dataclass

from agent.artifacts import tar_header
from agent.artifacts.tar_header import BLOCK_BYTES, FOLDER, Header
from agent.domain.errors import ArtifactTooLargeError, UnreadableTarError

_LARGEST_PAX_BYTES = 65536
"""Enough for two names and `security.capability`, Docker's only extended attribute."""
_END = bytes(2 * BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class TarLimits:
    """Limits of one archive; beyond them, ArtifactTooLargeError.

    `total_bytes`: of uncompressed tar, for both input and output; a size in a header counts at
    once. `entries`: including dropped ones. `depth`: components of a path.
    """

    total_bytes: int = 100_000_000
    entries: int = 100_000
    depth: int = 256
    name_bytes: int = 4096


class TarFilter:
    """Filters a tar in pieces. `root`: first component of names, `.` for the whole container.

    The first entry is the path itself; whatever its name is becomes `root`.
    """

    def __init__(self, root: bytes, limits: TarLimits | None = None) -> None:
        self.entries_kept = 0
        self._root = root
        self._source: bytes | None = None  # The first component of names in the input
        self._limits = limits or TarLimits()
        self._pending = b""
        self._content = 0  # Remaining bytes of the entry's content and padding
        self._passed_on = False
        self._pax_bytes = 0
        self._pax: bytearray | None = None  # The content of a PAX header, with its padding
        self._attributes: dict[bytes, bytes] = {}
        self._kinds: dict[int, bytes] = {}
        """Kinds of entries by a keyed, and so unpredictable, hash of the name."""
        self._entries = self._taken = 0
        self._given = len(_END)
        self._ended = False

    def feed(self, data: bytes) -> bytes:
        """Filter the next piece.

        Raises:
            ArtifactTooLargeError: The archive exceeds its limits.
            UnreadableTarError: The engine does not write such a tar.
        """
        self._pending += data
        view = memoryview(self._pending)
        position = 0
        out = list[bytes | memoryview]()
        while position < len(view):
            if self._content:
                piece = view[position : position + self._content]
                self._content -= len(piece)
                self._take_content(piece, out)
            else:
                piece = view[position : position + BLOCK_BYTES]
                if len(piece) < BLOCK_BYTES:
                    break
                self._take_block(bytes(piece), out)
            position += len(piece)
            self._taken += len(piece)
            self._check(self._limits.total_bytes, self._taken + self._content, "bytes")
        given = b"".join(out)
        self._pending = bytes(view[position:])
        self._given += len(given)
        self._check(self._limits.total_bytes, self._given, "bytes")
        return given

    def close(self) -> bytes:
        """Return the end of the archive; UnreadableTarError if the input is truncated."""
        if not self._ended or self._pending:
            raise UnreadableTarError("it is truncated")
        return _END

    def _check(self, limit: int, found: int, what: str) -> None:
        if found > limit:
            raise ArtifactTooLargeError(limit, what)

    def _take_content(self, piece: memoryview, out: list[bytes | memoryview]) -> None:
        if self._pax is not None:
            self._pax += piece
            if not self._content:
                self._attributes = tar_header.parse_pax(self._pax[: self._pax_bytes])
                self._pax = None
        elif self._passed_on:
            out.append(piece)

    def _take_block(self, block: bytes, out: list[bytes | memoryview]) -> None:
        if not any(block) and not self._attributes:
            self._ended = True
            return
        if self._ended:
            raise UnreadableTarError("something follows its end")
        header = tar_header.parse_header(block, self._attributes)
        if header.kind == tar_header.PAX:
            self._expect_pax(header.size)
            return
        self._attributes = {}
        self._entries += 1
        self._check(self._limits.entries, self._entries, "entries")
        self._content = _padded(header.size)
        self._passed_on = self._keeps(header)
        if self._passed_on:
            self.entries_kept += 1
            out.append(tar_header.render(header, self._entries))

    def _expect_pax(self, size: int) -> None:
        if self._attributes or not 0 < size <= _LARGEST_PAX_BYTES:
            raise UnreadableTarError(f"an entry has attributes twice, or {size} bytes of them")
        self._pax = bytearray()
        self._content = _padded(size)
        self._pax_bytes = size

    def _keeps(self, header: Header) -> bool:
        """Record an entry, correct its names, and return whether it is passed on."""
        header.name = self._named(header.name)
        parent, _, _ = header.name.rpartition(b"/")
        if header.name != self._root and self._kinds.get(hash(parent)) != FOLDER:
            raise UnreadableTarError("an entry has no parent directory in it")
        if hash(header.name) in self._kinds:
            raise UnreadableTarError("two entries have one name")
        kind = header.kind
        if kind == tar_header.HARD_LINK:
            header.link = self._named(header.link)
            kind = self._kinds.get(hash(header.link), FOLDER)
            if kind == FOLDER:
                raise UnreadableTarError("a hard link has no target in it")
        self._check(self._limits.name_bytes, len(header.link), "bytes in a link")
        self._kinds[hash(header.name)] = kind
        return kind not in tar_header.DEVICES

    def _named(self, raw: bytes) -> bytes:
        """Check and normalise a name."""
        first, _, rest = raw.rstrip(b"/").partition(b"/")
        if self._source is None:
            self._source = first
        if first != self._source or first in {b".", b".."}:
            raise UnreadableTarError("an entry lies outside of the path")
        name = self._root + b"/" + rest if rest else self._root
        self._check(self._limits.name_bytes, len(name), "bytes in a name")
        self._check(self._limits.depth, name.count(b"/") + 1, "nested directories")
        _, _, last = name.rpartition(b"/")
        if not last or (last in {b".", b".."} and name != self._root):
            raise UnreadableTarError("an entry has no proper name")
        return name


def _padded(size: int) -> int:
    return size + -size % BLOCK_BYTES
