"""The host's key, certificate and trusted authorities, in one file that is replaced atomically.

The key never leaves the host, and a renewed certificate has a new key.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.domain.errors import InvalidArgumentError
from agent.state.record import disk
from tiltyard.runtime.atomic_file import write

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
"""Exceptions of `cryptography` for damaged input."""


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
        except FileNotFoundError:
            return None
        try:
            key = serialization.load_pem_private_key(text, None)
            certificate, authority, *others = x509.load_pem_x509_certificates(text)
        except _UNREADABLE as error:
            raise UnfitIdentityError(f"{path} is damaged") from error
        trusted_too = b"".join(map(_pem, others))
        return cls(_key_pem(key), _pem(certificate), _pem(authority), trusted_too)

    def save(self, path: Path) -> None:
        """Write the file, owned by its folder's owner; raises DiskFullError. Blocks."""
        with disk(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = path.parent.stat()
            # Enrolment may run as root, and the agent as another user.
            owner = (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None
            write(path, self.key + self.certificate + self.trusted, 0o600, owner=owner)

    def trusting(self, authorities: bytes) -> Self:
        """Return a copy with 1 or 2 authorities, the signer first; raises UnfitIdentityError."""
        try:
            first, *others = x509.load_pem_x509_certificates(authorities)
            of_authority = [_is_authority(certificate) for certificate in (first, *others)]
        except _UNREADABLE as error:
            raise UnfitIdentityError("there is no authority") from error
        if not all(of_authority) or len(others) > 1:
            raise UnfitIdentityError("expected one or two authorities")
        return replace(self, authority=_pem(first), trusted_too=b"".join(map(_pem, others)))

    def check(self, now: float) -> str:
        """Return the certificate's URI; raises UnfitIdentityError if invalid at `now`."""
        try:
            leaf = x509.load_pem_x509_certificate(self.certificate)
            authority = x509.load_pem_x509_certificate(self.authority)
            key = serialization.load_pem_private_key(self.key, None)
        except _UNREADABLE as error:
            raise UnfitIdentityError("it is not a certificate for a host") from error
        try:
            leaf.verify_directly_issued_by(authority)
        except (InvalidSignature, *_UNREADABLE) as error:
            raise UnfitIdentityError("another authority has signed it") from error
        if leaf.public_key() != key.public_key():
            raise UnfitIdentityError("it is for another key")
        moment = datetime.fromtimestamp(now, UTC)
        if not leaf.not_valid_before_utc <= moment <= leaf.not_valid_after_utc:
            raise UnfitIdentityError("it is not valid now: check the clocks of both machines")
        return self.uri

    @property
    def trusted(self) -> bytes:
        """PEM text of the authorities whose control plane may call."""
        return self.authority + self.trusted_too

    @property
    def uri(self) -> str:
        """The URI that the certificate names; raises UnfitIdentityError without one."""
        try:
            leaf = x509.load_pem_x509_certificate(self.certificate)
            names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            [uri] = names.get_values_for_type(x509.UniformResourceIdentifier)
        except _UNREADABLE as error:
            raise UnfitIdentityError("it is not a certificate for a host") from error
        return uri

    @property
    def expire_time(self) -> float:
        """Expiry of the certificate in Unix time."""
        leaf = x509.load_pem_x509_certificate(self.certificate)
        return leaf.not_valid_after_utc.timestamp()


def make_request() -> tuple[bytes, bytes]:
    """Create a P-256 key and a signing request without a subject, as PEM texts."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = request.sign(key, hashes.SHA256())
    return _key_pem(key), signed.public_bytes(serialization.Encoding.PEM)


class HostIdentity:
    """Renews the identity of a running agent."""

    def __init__(
        self,
        state_dir: Path,
        run: Callable[..., Awaitable[Any]],
        time: Callable[[], float],
    ) -> None:
        """`run` calls a blocking function on a thread; `time` returns Unix time."""
        self.path = state_dir / FILE
        self.run = run
        self._time = time
        self._requested_key: bytes | None = None

    async def request(self) -> bytes:
        """Create a key, replacing an earlier unused one, and return its signing request."""
        await self._current()
        self._requested_key, request = make_request()
        return request

    async def install(self, certificate: bytes, authorities: bytes = b"") -> None:
        """Replace what is not empty, for new connections. Idempotent.

        Raises:
            InvalidArgumentError: The certificate is not for this host and the last requested key,
                or not signed by the first authority.
        """
        current = await self._current()
        try:
            renewed = current.trusting(authorities) if authorities else current
            if certificate not in {b"", current.certificate}:
                if self._requested_key is None:
                    raise InvalidArgumentError("certificate", "none was requested")
                renewed = replace(renewed, key=self._requested_key, certificate=certificate)
            if renewed == current:
                return
            if renewed.check(self._time()) != current.uri:
                raise InvalidArgumentError("certificate", "it names another host")
        except UnfitIdentityError as error:
            raise InvalidArgumentError("certificate", str(error)) from error
        await self.run(renewed.save, self.path)
        if renewed.key == self._requested_key:  # else a new key was requested concurrently
            self._requested_key = None

    async def _current(self) -> Identity:
        try:
            current: Identity | None = await self.run(Identity.read, self.path)
        except (OSError, UnfitIdentityError) as error:
            cause = f"its identity cannot be read: {error}"
            raise InvalidArgumentError("the call", cause) from error
        if current is None:
            raise InvalidArgumentError("the call", "this host is not enrolled")
        return current


def _key_pem(key: Any) -> bytes:
    return key.private_bytes(  # type: ignore[no-any-return]
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
