"""The file of a backup: a tar archive whose first member says what the others are.

`manifest.json`, then each part in the order that the manifest has, as plain files of mode 0600;
`tar -tvf` shows them. It is read as strictly as that: its names are compared and lead nowhere, a
member of another kind or size is an error, and no more of it is held in memory than a portion.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

FORMAT = 1
MANIFEST = "manifest.json"
DATABASE = "controlplane.db"
AUTHORITY, TICKET_KEY, REGISTRY_KEY = "authority.pem", "ticket.key", "registry.key"
PARTS = (DATABASE, AUTHORITY, TICKET_KEY, REGISTRY_KEY)
"""In their order, named as in the state directory; the last is there once a password was set."""

MAX_MANIFEST_BYTES = 64 * 1024
MAX_KEY_BYTES = 16 * 1024
_CHUNK = 1024 * 1024
_BLOCK = tarfile.BLOCKSIZE


class BadBackupError(Exception):
    """A file that is no whole backup; the text says why, to follow "because"."""


class Part(BaseModel):
    """A file of a backup."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @classmethod
    def of(cls, path: Path) -> Self:
        """Describe a file that nobody writes to. Blocks."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return cls(name=path.name, size=file.tell(), sha256=digest)


class Manifest(BaseModel):
    """What a backup is of: `schema_number` is the database's, `time` is UTC, as in RFC 3339."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    version: str
    schema_number: Annotated[int, Field(ge=1)]
    time: str
    environment: str
    parts: tuple[Part, ...]

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        names = tuple(part.name for part in self.parts)
        if names not in {PARTS, PARTS[:-1]}:
            raise ValueError(f"its parts are {', '.join(names) or 'none'}")
        if any(part.size > MAX_KEY_BYTES for part in self.parts if part.name != DATABASE):
            raise ValueError("a key is too large for one")
        return self

    @property
    def names(self) -> frozenset[str]:
        """The names of its parts."""
        return frozenset(part.name for part in self.parts)

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Read what `write` wrote.

        Raises:
            BadBackupError: It is something else, or of a newer format.
        """
        try:
            number = _Numbered.model_validate_json(text).format
            if number > FORMAT:
                raise BadBackupError(
                    f"it has format {number}, and this program knows {FORMAT}: use a newer one"
                )
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise BadBackupError(f"its manifest is damaged: {where} {first['msg']}") from error

    def write(self) -> bytes:
        """Write it for people and programs."""
        return self.model_dump_json(indent=2).encode() + b"\n"


class _Numbered(BaseModel):
    format: Annotated[int, Field(ge=1)]


def write_backup(file: BinaryIO, manifest: Manifest, folder: Path, mtime: int) -> None:
    """Write the manifest and the parts, which are in a folder. Blocks.

    `mtime` is Unix time, for those who list the archive.

    Raises:
        OSError: It cannot be written, or a part not be read.
    """
    text = manifest.write()
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(_member(MANIFEST, len(text), mtime), io.BytesIO(text))
        for part in manifest.parts:
            with (folder / part.name).open("rb") as source:
                archive.addfile(_member(part.name, part.size, mtime), source)


def _member(name: str, size: int, mtime: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, mtime, 0o600
    return member


class BackupReader:
    """Reads a backup once, from its begin to its end; nothing is sought. Blocks."""

    manifest: Manifest

    def __init__(self, file: BinaryIO) -> None:
        """Read the manifest.

        Raises:
            BadBackupError: It is no backup, or of a newer format.
            OSError: It cannot be read.
        """
        self._file = file
        size = self._begin(MANIFEST)
        if size > MAX_MANIFEST_BYTES:
            raise BadBackupError("its manifest is too large for one")
        self.manifest = Manifest.read(b"".join(self._content(size)))

    def extract(self, folder: Path) -> None:
        """Write the parts and the manifest into a folder that is ours alone, each mode 0600.

        They are what the manifest says, but nothing is said of what is in them.

        Raises:
            BadBackupError: The rest of the file is not what the manifest says.
            OSError: It cannot be read, or not be written.
        """
        for part in self.manifest.parts:
            size, digest = self._begin(part.name), hashlib.sha256()
            if size != part.size:
                raise BadBackupError(f"{part.name} has {size} bytes instead of {part.size}")
            with _create(folder / part.name) as file:
                for chunk in self._content(size):
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            if digest.hexdigest() != part.sha256:
                raise BadBackupError(f"{part.name} is damaged: it has another checksum")
        if self._header() is not None:
            raise BadBackupError("there is more in it than its manifest says")
        with _create(folder / MANIFEST) as file:
            file.write(self.manifest.write())
            file.flush()
            os.fsync(file.fileno())

    def _begin(self, name: str) -> int:
        member = self._header()
        if member is None or member.name != name:
            found = "its end" if member is None else repr(member.name)
            raise BadBackupError(f"{found} stands where {name} should be")
        if member.type != tarfile.REGTYPE or member.size < 0:
            raise BadBackupError(f"{name} is no plain file in it")
        return member.size

    def _header(self) -> tarfile.TarInfo | None:
        block = self._read(_BLOCK)
        if not any(block):
            return None
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "replace")
        except tarfile.HeaderError as error:
            raise BadBackupError(f"it is no backup, or damaged: {error}") from error

    def _content(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            chunk = self._read(min(left, _CHUNK))
            left -= len(chunk)
            yield chunk
        self._read(-size % _BLOCK)

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise BadBackupError("its end is missing")
        return data


def _create(path: Path) -> BinaryIO:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")
