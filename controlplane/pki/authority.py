"""The private certificate authority of a deployment. Times are Unix time in seconds.

An agent's certificate is for servers only (EKU serverAuth) and names the agent; the control
plane's is for clients only (clientAuth). Only the key of a signing request is used.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from controlplane.domain.access.enrolment import Issued

CALLER_URI = "tiltyard://controlplane"
"""SAN of clients that may call agents. Agents check it on every call."""

ENROLMENT_HOST = "enrolment.tiltyard.internal"
"""DNS name in the certificate of the enrolment listener, whatever its address."""

LIFE = timedelta(days=30)  # Of issued certificates
AUTHORITY_LIFE = timedelta(days=3650)
ENDING = timedelta(days=365)
"""Replace an authority this long before it expires: hosts may be offline for months."""

BACKDATED = timedelta(minutes=10)  # Tolerated clock skew: host clocks may be behind by this much
MAX_REQUEST_BYTES = 8192  # A signing request for a P-256 key has about 400

_CURVE = ec.SECP256R1()


class UnfitRequestError(ValueError):
    """A rejected signing request. The message is a predicate of "it"."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate of the control plane and its key, as PEM text."""

    certificate: bytes
    key: bytes = field(repr=False)
    expire: float


def agent_host(agent_id: str) -> str:
    """Return the DNS name in an agent's certificate, used to dial it."""
    return f"{agent_id}.agent.tiltyard.internal"


def agent_uri(agent_id: str) -> str:
    """Return the URI in an agent's certificate."""
    return f"tiltyard://agent/{agent_id}"


class Authority:
    """A CA certificate and its key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, now: float) -> Self:
        """Create an authority. Its unique name keeps TLS from trying another authority's key."""
        key = ec.generate_private_key(_CURVE)
        name = _name(f"Tiltyard authority {secrets.token_hex(8)}")
        begin = datetime.fromtimestamp(now, UTC)
        builder = _builder(
            name, name, key.public_key(), begin=begin, expire=begin + AUTHORITY_LIFE
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs_certificates=True), True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def from_pem(cls, text: bytes) -> Self:
        """Parse the output of `to_pem`.

        Raises:
            ValueError: Not an authority.
        """
        try:
            key = serialization.load_pem_private_key(text, password=None)
            certificate = x509.load_pem_x509_certificate(text)
        except (TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
            raise ValueError(str(error)) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("its key is of another kind")  # noqa: TRY004  # as all else here
        if certificate.public_key() != key.public_key():
            raise ValueError("its key and its certificate do not belong together")
        return cls(certificate, key)

    def to_pem(self) -> bytes:
        """Return the key and the certificate."""
        return _key_pem(self._key) + self.certificate

    @property
    def certificate(self) -> bytes:
        """The certificate as PEM text, without the key."""
        return _pem(self._certificate)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate. Hosts that enrol verify it before they trust it."""
        return self._certificate.fingerprint(hashes.SHA256()).hex()

    @property
    def expire(self) -> float:
        """Expiry of the certificate and the latest expiry of what it signed."""
        return self._certificate.not_valid_after_utc.timestamp()

    @property
    def begin(self) -> float:
        """Creation time."""
        return (self._certificate.not_valid_before_utc + BACKDATED).timestamp()

    def is_ending(self, now: float) -> bool:
        """Return whether the authority expires within `ENDING`."""
        return self.expire - now < ENDING.total_seconds()

    def is_due(self, expire: float, now: float) -> bool:
        """Return whether an issued certificate is due for renewal, after two thirds of its life.

        One that is not valid yet is due too: it was issued while the clock was ahead.
        """
        life = LIFE.total_seconds()
        return not expire - life - BACKDATED.total_seconds() <= now < expire - life / 3

    def sign_agent(self, request: bytes, agent_id: str, now: float) -> Issued:
        """Issue an agent's certificate for the key of a signing request.

        Raises:
            UnfitRequestError: Malformed, or requests names or attributes.
        """
        names = [
            x509.UniformResourceIdentifier(agent_uri(agent_id)),
            x509.DNSName(agent_host(agent_id)),
        ]
        key = _requested_key(request)
        made = self._sign(key, agent_id, names=names, use=ExtendedKeyUsageOID.SERVER_AUTH, now=now)
        serial = f"{made.serial_number:x}"
        return Issued(_pem(made), serial, made.not_valid_after_utc.timestamp(), self.fingerprint)

    def caller(self, now: float) -> Identity:
        """Create the client identity for calls to agents."""
        names = [x509.UniformResourceIdentifier(CALLER_URI)]
        return self._identity("controlplane", names, ExtendedKeyUsageOID.CLIENT_AUTH, now)

    def listener(self, now: float) -> Identity:
        """Create the server identity of the enrolment listener."""
        names = [x509.DNSName(ENROLMENT_HOST)]
        return self._identity("enrolment", names, ExtendedKeyUsageOID.SERVER_AUTH, now)

    def _identity(
        self, name: str, names: Sequence[x509.GeneralName], use: ObjectIdentifier, now: float
    ) -> Identity:
        key = ec.generate_private_key(_CURVE)
        made = self._sign(key.public_key(), name, names=names, use=use, now=now)
        return Identity(_pem(made), _key_pem(key), made.not_valid_after_utc.timestamp())

    def _sign(
        self,
        key: ec.EllipticCurvePublicKey,
        name: str,
        *,
        names: Sequence[x509.GeneralName],
        use: ObjectIdentifier,
        now: float,
    ) -> x509.Certificate:
        issuer = self._certificate
        # An expired authority issues expired certificates: it can be rotated while serving.
        begin = min(datetime.fromtimestamp(now, UTC), issuer.not_valid_after_utc)
        expire = min(begin + LIFE, issuer.not_valid_after_utc)
        builder = _builder(_name(name), issuer.subject, key, begin=begin, expire=expire)
        issuer_key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([use]), True),
            (x509.SubjectAlternativeName(names), False),
            (issuer_key_id, False),
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def _requested_key(text: bytes) -> ec.EllipticCurvePublicKey:
    if len(text) > MAX_REQUEST_BYTES:
        raise UnfitRequestError(f"is longer than {MAX_REQUEST_BYTES} bytes")
    try:
        request = x509.load_pem_x509_csr(text)
        key = request.public_key()
        is_signed = request.is_signature_valid
        is_plain = not request.subject.rdns and not len(request.attributes)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise UnfitRequestError("is not a signing request in PEM") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != _CURVE.name:
        raise UnfitRequestError("has a key other than one on P-256")
    if not is_signed:
        raise UnfitRequestError("is not signed with its own key")
    if not is_plain:
        raise UnfitRequestError("requests a name or extensions: only a key is allowed")
    return key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    begin: datetime,
    expire: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - BACKDATED)
        .not_valid_after(expire)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
