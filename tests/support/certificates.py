"""Certificates and signing requests of every kind, including invalid ones.

By default they pass VERIFY_X509_STRICT, the default of Python 3.13.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CONTROL_PLANE = "tiltyard://controlplane"
CALLS = ExtendedKeyUsageOID.CLIENT_AUTH
SERVES = ExtendedKeyUsageOID.SERVER_AUTH
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Party:
    """A key and its certificate, as PEM texts."""

    key: bytes
    certificate: bytes


class Signer:
    """An authority that signs any request."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def new(cls, name: str = "somebody") -> Signer:
        key = a_key()
        subject = _name(name)
        builder = _builder(subject, subject, key.public_key(), timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        builder = builder.add_extension(_SIGNS_CERTIFICATES, True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def of(cls, text: bytes) -> Signer:
        """Load the key of the product's authority from its file."""
        key = serialization.load_pem_private_key(text, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(key, x509.load_pem_x509_certificate(text))

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def sign(
        self,
        use: x509.ObjectIdentifier,
        uris: Sequence[str] = (),
        hosts: Sequence[str] = (),
        life: timedelta = timedelta(hours=1),
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> Party:
        key = key or a_key()
        return Party(pem_of(key), self._signed(key.public_key(), use, uris, hosts, life))

    def answer(
        self,
        request: bytes,
        uris: Sequence[str],
        hosts: Sequence[str],
        life: timedelta = timedelta(hours=1),
    ) -> bytes:
        """Sign the key of a request as a server certificate."""
        key = x509.load_pem_x509_csr(request).public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        return self._signed(key, SERVES, uris, hosts, life)

    def _signed(
        self,
        key: ec.EllipticCurvePublicKey,
        use: x509.ObjectIdentifier,
        uris: Sequence[str],
        hosts: Sequence[str],
        life: timedelta,
    ) -> bytes:
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
        for host in hosts:
            is_address = host[0].isdigit()
            names.append(x509.IPAddress(ip_address(host)) if is_address else x509.DNSName(host))
        builder = _builder(_name("party"), self._certificate.subject, key, life)
        for extension in (
            x509.BasicConstraints(ca=False, path_length=None),
            x509.ExtendedKeyUsage([use]),
            x509.SubjectAlternativeName(names),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        ):
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def trusting(authority: bytes) -> ssl.SSLContext:
    """A client context that trusts only this authority, as strict as in Python 3.13."""
    context = ssl.create_default_context(cadata=authority.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def self_signed(
    use: x509.ObjectIdentifier, uris: Sequence[str] = (), hosts: Sequence[str] = ()
) -> Party:
    """A party with a self-signed certificate."""
    key = a_key()
    subject = _name("party")
    own = _builder(subject, subject, key.public_key(), timedelta(days=1))
    return Signer(key, own.sign(key, hashes.SHA256())).sign(use, uris, hosts, timedelta(1), key)


def a_request(
    key: Key | None = None, *, subject: str = "", extensions: Sequence[x509.ExtensionType] = ()
) -> bytes:
    """A signing request."""
    builder = x509.CertificateSigningRequestBuilder()
    builder = builder.subject_name(_name(subject) if subject else x509.Name([]))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(key or a_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def a_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


_USES = inspect.signature(x509.KeyUsage).parameters
_SIGNS_CERTIFICATES = x509.KeyUsage(**{use: use == "key_cert_sign" for use in _USES})


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
