"""Tar archives as an engine sends them, with entries that a hostile container may make."""

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.artifacts.tar_filter import TarFilter, TarLimits

ROOT = b"data"  # The name of the archive in most tests
LARGEST_TIME = 8**11 - 1


@dataclass(frozen=True)
class Entry:
    """One entry; names and links are bytes, as Linux has them."""

    name: bytes
    kind: bytes = tarfile.REGTYPE
    content: bytes = b""
    link: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    time: int = 0
    attributes: dict[str, str] = field(default_factory=dict, compare=False)


def folder(name: bytes) -> Entry:
    return Entry(name, tarfile.DIRTYPE, mode=0o755)


def hard(name: bytes, link: bytes) -> Entry:
    return Entry(name, tarfile.LNKTYPE, link=link)


def soft(name: bytes, link: bytes) -> Entry:
    return Entry(name, tarfile.SYMTYPE, link=link, mode=0o777)


def tar_of(entries: Iterable[Entry], *, end: bool = True) -> bytes:
    """Write any entries in order; without `end` the archive is truncated."""
    data = b"".join(_encoded(entry) for entry in entries)
    return data + bytes(1024) if end else data


def tar_of_files(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    """Write plain files, all with this mode."""
    return tar_of(Entry(name.encode(), content=data, mode=mode) for name, data in files.items())


def read(data: bytes) -> list[Entry]:
    """Read entries with a tar reader other than ours."""
    found = []
    with tarfile.open(
        fileobj=io.BytesIO(data), mode="r:", encoding="utf-8", errors="surrogateescape"
    ) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            found.append(
                Entry(
                    name=_bytes(member.name),
                    kind=member.type,
                    content=content.read() if content else b"",
                    link=_bytes(member.linkname),
                    mode=member.mode,
                    uid=member.uid,
                    gid=member.gid,
                    time=int(member.mtime),
                    attributes=dict(member.pax_headers),
                )
            )
    return found


def filtered(
    data: bytes, *, root: bytes = ROOT, limits: TarLimits | None = None, pieces: int = 2**20
) -> bytes:
    """Return the output of the agent's filter, which gets the input in pieces."""
    tar = TarFilter(root, limits)
    parts = [tar.feed(data[at : at + pieces]) for at in range(0, len(data), pieces)]
    return b"".join(parts) + tar.close()


def resummed(block: bytes) -> bytes:
    """Return the archive with the checksum of its first block corrected."""
    blank = block[:148] + b" " * 8 + block[156:512]
    return b"%s%06o\0 %s" % (block[:148], sum(blank), block[156:])


def _encoded(entry: Entry) -> bytes:
    member = tarfile.TarInfo(_text(entry.name))
    member.type = entry.kind
    member.linkname = _text(entry.link)
    member.mode = entry.mode
    member.mtime = entry.time
    member.uid = entry.uid
    member.gid = entry.gid
    member.size = len(entry.content)
    member.pax_headers = entry.attributes
    header = member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    return header + entry.content + bytes(-len(entry.content) % tarfile.BLOCKSIZE)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
