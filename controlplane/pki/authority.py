"""The private certificate authority of a deployment: what it signs, for whom and for how long.

An agent's certificate serves alone (EKU serverAuth) and names the agent; ours calls alone
(clientAuth). Of a signing request only the key is taken. Times are seconds of Unix time. Pure but
for the randomness of keys and serial numbers.
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

CALLER_URI = "tiltyard://controlplane"
"""Of clients that may call agents; every agent checks it on every call."""

ENROLMENT_HOST = "enrolment.tiltyard.internal"
"""The name of the enrolment listener, wherever it is reached."""

LIFE = timedelta(days=30)
AUTHORITY_LIFE = timedelta(days=3650)
ENDING = timedelta(days=365)
"""So long before its end an authority should be replaced: hosts may be away for months."""

BACKDATED = timedelta(minutes=10)
"""So far may the clocks of hosts be behind ours."""

MAX_REQUEST_BYTES = 8192
"""A signing request for a P-256 key has some 400."""

_CURVE = ec.SECP256R1()


class UnfitRequestError(ValueError):
    """A signing request that is not signed; the text says why, to follow "it"."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate of an agent, as PEM text, and the fingerprint of the authority that signed."""

    certificate: bytes
    serial: str
    expire: float
    authority: str


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate of our own with its key, as PEM texts."""

    certificate: bytes
    key: bytes = field(repr=False)
    expire: float


def agent_host(agent_id: str) -> str:
    """Give the DNS name in an agent's certificate, which it is dialled by."""
    return f"{agent_id}.agent.tiltyard.internal"


def agent_uri(agent_id: str) -> str:
    """Give the URI in an agent's certificate."""
    return f"tiltyard://agent/{agent_id}"


class Authority:
    """A certificate and its key. `life` is that of what it signs."""

    def __init__(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, life: timedelta
    ) -> None:
        self._certificate = certificate
        self._key = key
        self.life = life

    @classmethod
    def create(cls, now: float, life: timedelta = LIFE) -> Self:
        """Make one. Its name is its own, so that no other's signature is tried with its key."""
        key = ec.generate_private_key(_CURVE)
        name = _name(f"Tiltyard authority {secrets.token_hex(8)}")
        begin = datetime.fromtimestamp(now, UTC)
        builder = _builder(name, name, key.public_key(), begin, begin + AUTHORITY_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs_certificates=True), True)
        return cls(builder.sign(key, hashes.SHA256()), key, life)

    @classmethod
    def from_pem(cls, text: bytes, life: timedelta = LIFE) -> Self:
        """Read what `to_pem` wrote.

        Raises:
            ValueError: It is something else.
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
        return cls(certificate, key, life)

    def to_pem(self) -> bytes:
        """Write the key and the certificate."""
        return _key_pem(self._key) + self.certificate

    @property
    def certificate(self) -> bytes:
        """The certificate as PEM text, for everybody."""
        return _pem(self._certificate)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate, by which a host knows it before it trusts it."""
        return self._certificate.fingerprint(hashes.SHA256()).hex()

    @property
    def expire(self) -> float:
        """When it ends, and with it all that it signed; in Unix time."""
        return self._certificate.not_valid_after_utc.timestamp()

    @property
    def begin(self) -> float:
        """When it was made, in Unix time."""
        return (self._certificate.not_valid_before_utc + BACKDATED).timestamp()

    def is_ending(self, now: float) -> bool:
        """Return whether it should be replaced before it ends."""
        return self.expire - now < ENDING.total_seconds()

    def is_due(self, expire: float, now: float) -> bool:
        """Return whether two thirds of the life of what it signed are over.

        Or whether that has not begun: a clock that was ahead, and is set back, leaves such ones.
        """
        life = self.life.total_seconds()
        return not expire - life - BACKDATED.total_seconds() <= now < expire - life / 3

    def sign_agent(self, request: bytes, agent_id: str, now: float) -> Issued:
        """Sign the key of a request for an agent, if the request asks for nothing more.

        Raises:
            UnfitRequestError: It is none, or asks for more than that.
        """
        names = [
            x509.UniformResourceIdentifier(agent_uri(agent_id)),
            x509.DNSName(agent_host(agent_id)),
        ]
        key = _requested_key(request)
        made = self._sign(key, agent_id, names, ExtendedKeyUsageOID.SERVER_AUTH, now)
        serial = f"{made.serial_number:x}"
        return Issued(_pem(made), serial, made.not_valid_after_utc.timestamp(), self.fingerprint)

    def caller(self, now: float) -> Identity:
        """Make a key and a certificate with which agents are called."""
        names = [x509.UniformResourceIdentifier(CALLER_URI)]
        return self._identity("controlplane", names, ExtendedKeyUsageOID.CLIENT_AUTH, now)

    def listener(self, now: float) -> Identity:
        """Make a key and a certificate with which hosts are enrolled."""
        names = [x509.DNSName(ENROLMENT_HOST)]
        return self._identity("enrolment", names, ExtendedKeyUsageOID.SERVER_AUTH, now)

    def _identity(
        self, name: str, names: Sequence[x509.GeneralName], use: ObjectIdentifier, now: float
    ) -> Identity:
        key = ec.generate_private_key(_CURVE)
        made = self._sign(key.public_key(), name, names, use, now)
        return Identity(_pem(made), _key_pem(key), made.not_valid_after_utc.timestamp())

    def _sign(
        self,
        key: ec.EllipticCurvePublicKey,
        name: str,
        names: Sequence[x509.GeneralName],
        use: ObjectIdentifier,
        now: float,
    ) -> x509.Certificate:
        issuer = self._certificate
        # One that has ended signs what has ended, too: it can be replaced while we serve.
        begin = min(datetime.fromtimestamp(now, UTC), issuer.not_valid_after_utc)
        expire = min(begin + self.life, issuer.not_valid_after_utc)
        builder = _builder(_name(name), issuer.subject, key, begin, expire)
        of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([use]), True),
            (x509.SubjectAlternativeName(names), False),
            (of_issuer, False),
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
        raise UnfitRequestError("is no signing request in PEM") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != _CURVE.name:
        raise UnfitRequestError("has a key other than one on P-256")
    if not is_signed:
        raise UnfitRequestError("is not signed with its own key")
    if not is_plain:
        raise UnfitRequestError("asks for a name or for rights: a key is all that may stand there")
    return key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
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
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
