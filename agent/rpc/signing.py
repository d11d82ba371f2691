"""Certificates and keys of enrolment and renewal; only these import `cryptography`, of 8 MB."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.rpc.identity import Identity, UnfitIdentityError

_UNREADABLE = (
    TypeError,
    ValueError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
)
"""Exceptions of `cryptography` for damaged input."""


def make_request() -> tuple[bytes, bytes]:
    """Create a P-256 key and a signing request without a subject, as PEM texts."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = request.sign(key, hashes.SHA256())
    return _key_pem(key), signed.public_bytes(serialization.Encoding.PEM)


def trusting(identity: Identity, authorities: bytes) -> Identity:
    """Return a copy with 1 or 2 authorities, the signer first; raises UnfitIdentityError."""
    try:
        first, *others = x509.load_pem_x509_certificates(authorities)
        of_authority = [_is_authority(certificate) for certificate in (first, *others)]
    except _UNREADABLE as error:
        raise UnfitIdentityError("there is no authority") from error
    if not all(of_authority) or len(others) > 1:
        raise UnfitIdentityError("expected one or two authorities")
    return replace(identity, authority=_pem(first), trusted_too=b"".join(map(_pem, others)))


def check(identity: Identity, now: float) -> str:
    """Return the certificate's URI; raises UnfitIdentityError if invalid at `now`."""
    try:
        leaf = x509.load_pem_x509_certificate(identity.certificate)
        authority = x509.load_pem_x509_certificate(identity.authority)
        key = serialization.load_pem_private_key(identity.key, None)
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
    return identity.uri


def expire_time(identity: Identity) -> float:
    """Expiry of the certificate in Unix time."""
    leaf = x509.load_pem_x509_certificate(identity.certificate)
    return leaf.not_valid_after_utc.timestamp()


def _key_pem(key: Any) -> bytes:
    return key.private_bytes(  # type: ignore[no-any-return]
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
