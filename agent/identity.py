"""Who this host is to its control plane: a key made here, and the certificate signed for it.

Key, certificate and the authority's certificate are one file, replaced whole, so that they always
belong together. The key never leaves the host, and a renewed certificate has another one.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.errors import InvalidArgument
from agent.sessions.durable import disk, write

FILE = "identity.pem"
"""In the state directory."""

MAX_BYTES = 64 * 1024

_UNREADABLE = (
    TypeError,
    ValueError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
)
"""What `cryptography` says of texts in which a bit has changed."""


class UnfitIdentity(ValueError):
    """Key, certificate and authority do not go together; the text says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """PEM texts of a key, the certificate for it, and the authority that signed that."""

    key: bytes = field(repr=False)
    certificate: bytes
    authority: bytes

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read an identity; None when there is none. OSError or UnfitIdentity. Blocks."""
        try:
            with path.open("rb") as file:
                text = file.read(MAX_BYTES)
        except FileNotFoundError:
            return None
        try:
            key = serialization.load_pem_private_key(text, None)
            certificate, authority = x509.load_pem_x509_certificates(text)
        except _UNREADABLE as error:
            raise UnfitIdentity(f"{path} is damaged") from error
        return cls(_key_pem(key), _pem(certificate), _pem(authority))

    def save(self, path: Path) -> None:
        """Put it in its place, for the user whose folder that is. DiskFull. Blocks."""
        with disk(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder, text = path.parent.stat(), self.key + self.certificate + self.authority
            # Whoever enrols may be root, and the agent another user.
            owner = (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None
            write(path, text, 0o600, owner=owner)

    def with_certificate(self, key: bytes, certificate: bytes, now: float) -> Identity:
        """Give the same host with another key and certificate; UnfitIdentity when that is not it.

        `now` in Unix time.
        """
        made = Identity(key, certificate, self.authority)
        if made.check(now) != self.uri:
            raise UnfitIdentity("it names another host")
        return made

    def check(self, now: float) -> str:
        """Give the URI that the certificate names; UnfitIdentity when it is not good now."""
        try:
            leaf = x509.load_pem_x509_certificate(self.certificate)
            leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(self.authority))
            key = serialization.load_pem_private_key(self.key, None)
            uri = _uri(leaf)
        except InvalidSignature:
            raise UnfitIdentity("another authority has signed it") from None
        except _UNREADABLE as error:
            raise UnfitIdentity("it is not a certificate for a host") from error
        if leaf.public_key() != key.public_key():
            raise UnfitIdentity("it is for another key")
        if not leaf.not_valid_before_utc <= _time(now) <= leaf.not_valid_after_utc:
            raise UnfitIdentity("it is not valid now: look at the clocks of both machines")
        return uri

    @property
    def uri(self) -> str:
        """The URI that the certificate names."""
        return _uri(x509.load_pem_x509_certificate(self.certificate))

    @property
    def expire_time(self) -> float:
        """When the certificate ends, in Unix time."""
        leaf = x509.load_pem_x509_certificate(self.certificate)
        return leaf.not_valid_after_utc.timestamp()


def make_request() -> tuple[bytes, bytes]:
    """Make a key on P-256 and a signing request for it that says nothing else, as PEM texts."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = request.sign(key, hashes.SHA256())
    return _key_pem(key), signed.public_bytes(serialization.Encoding.PEM)


class HostIdentity:
    """The identity of a running agent, and its renewal."""

    def __init__(
        self,
        state_dir: Path,
        run: Callable[..., Awaitable[Any]],
        time: Callable[[], float],
    ) -> None:
        """Read and write by `run`, which does elsewhere what blocks; `time` is Unix time."""
        self.path = state_dir / FILE
        self.run = run
        self._time = time
        self._asked: bytes | None = None

    async def request(self) -> bytes:
        """Make a key, in place of one that was asked for before, and give the signing request."""
        await self._current()
        self._asked, request = make_request()
        return request

    async def install(self, certificate: bytes) -> None:
        """Be that from the next connection on. Idempotent.

        InvalidArgument when it is not for this host and the key that was made last.
        """
        current = await self._current()
        if certificate == current.certificate:
            return
        if self._asked is None:
            raise InvalidArgument("certificate", "none was asked for")
        try:
            renewed = current.with_certificate(self._asked, certificate, self._time())
        except UnfitIdentity as error:
            raise InvalidArgument("certificate", str(error)) from error
        await self.run(renewed.save, self.path)
        self._asked = None

    async def _current(self) -> Identity:
        try:
            current: Identity | None = await self.run(Identity.read, self.path)
        except (OSError, UnfitIdentity) as error:
            raise InvalidArgument("the call", f"its identity cannot be read: {error}") from error
        if current is None:
            raise InvalidArgument("the call", "this host is not enrolled")
        return current


def _key_pem(key: Any) -> bytes:
    return key.private_bytes(  # type: ignore[no-any-return]
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _uri(certificate: x509.Certificate) -> str:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    [uri] = names.get_values_for_type(x509.UniformResourceIdentifier)
    return uri


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
