"""The host's key, certificate and trusted authorities, in one file that is replaced atomically.

The key never leaves the host, and a renewed certificate has a new key.
"""

import os
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agent.state.record import disk
from tiltyard.runtime.atomic_file import write

FILE = "identity.pem"  # In the state directory
MAX_BYTES = 64 * 1024

_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----\n.*?-----END \1-----\n", re.DOTALL)
_SUBJECT_ALT_NAME = bytes.fromhex("0603551d11")  # The extension's object identifier in DER
_URI = 0x86  # The DER tag of a URI in it


class UnfitIdentityError(ValueError):
    """Key, certificate and authority are damaged or do not match; the text states the cause."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A key, its certificate and the authority that signed it, as PEM text.

    `trusted_too`: a second authority whose control plane may call, or empty.
    """

    key: bytes = field(repr=False)
    certificate: bytes
    authority: bytes
    trusted_too: bytes = b""

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read an identity or None; raises OSError, UnfitIdentityError. Blocks."""
        try:
            with path.open("rb") as file:
                text = file.read(MAX_BYTES)
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                # Checks that the key is for the certificate. It opens a path twice, and a renewal
                # may replace the file in between.
                context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
            key, certificate, authority, *more = [block[0] for block in _BLOCK.finditer(text)]
            context.load_verify_locations(cadata=b"".join([authority, *more]).decode("ascii"))
        except FileNotFoundError:
            return None
        except (ValueError, ssl.SSLError) as error:
            raise UnfitIdentityError(f"{path} is damaged") from error
        return cls(key, certificate, authority, b"".join(more))

    def save(self, path: Path) -> None:
        """Write the file, owned by its folder's owner; raises DiskFullError. Blocks."""
        with disk(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = path.parent.stat()
            # Enrolment may run as root, and the agent as another user.
            owner = (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None
            write(path, self.key + self.certificate + self.trusted, 0o600, owner=owner)

    @property
    def trusted(self) -> bytes:
        """PEM text of the authorities whose control plane may call."""
        return self.authority + self.trusted_too

    @property
    def uri(self) -> str:
        """The URI that the certificate names; raises UnfitIdentityError without one."""
        der = ssl.PEM_cert_to_DER_cert(self.certificate.decode("ascii"))
        _, _, rest = der.partition(_SUBJECT_ALT_NAME)
        try:
            for _ in range(2):  # the extension's value, and its list of names
                _, rest = next(_elements(rest))
            [uri] = [content for tag, content in _elements(rest) if tag == _URI]
        except (IndexError, StopIteration, ValueError) as error:
            raise UnfitIdentityError("it is not a certificate for a host") from error
        return uri.decode("ascii", "replace")


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the content of each DER element."""
    while der:
        tag = der[0]
        size = der[1]
        begin = 2
        if size & 0x80:  # it is the length of the length
            begin += size & 0x7F
            size = int.from_bytes(der[2:begin], "big")
        yield tag, der[begin : begin + size]
        der = der[begin + size :]
