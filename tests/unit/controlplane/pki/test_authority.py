import asyncio
import base64
import contextlib
import ssl
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from controlplane.domain.errors import StoreError
from controlplane.pki.authority import ENROLMENT_HOST, Authority, UnfitRequestError, agent_host
from controlplane.pki.issuer import Issuer
from tests.support.certificates import SERVES, Signer, a_key, a_request, pem_of, trusting
from tiltyard.runtime.clock import SystemClock

NOW = 1_800_000_000.0
ID = "0b6c2f5e-0d3f-4d0e-9d7c-0a5f8c1d2e3f"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create(NOW)


def read(text: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(text)


def described(made: x509.Certificate) -> tuple[list[str], list[str], list[x509.ObjectIdentifier]]:
    """The URIs, hosts and uses of a certificate, which must not sign others."""
    extension = made.extensions.get_extension_for_class
    constraints = extension(x509.BasicConstraints)
    uses = extension(x509.ExtendedKeyUsage)
    assert constraints.critical is True
    assert constraints.value.ca is False
    assert uses.critical is True
    assert not extension(x509.KeyUsage).value.key_cert_sign
    names = extension(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    hosts = names.get_values_for_type(x509.DNSName)
    assert len(list(names)) == len(uris) + len(hosts)
    return uris, hosts, list(uses.value)


def test_agent_certificate_is_for_servers_and_names_only_the_agent(authority: Authority) -> None:
    key = a_key()
    issued = authority.sign_agent(a_request(key), ID, NOW)
    made = read(issued.certificate)
    made.verify_directly_issued_by(read(authority.certificate))
    assert made.public_key() == key.public_key()
    assert made.subject.rfc4514_string() == f"CN={ID}"
    uris = [f"tiltyard://agent/{ID}"]
    hosts = [f"{ID}.agent.tiltyard.internal"]
    assert described(made) == (uris, hosts, [ExtendedKeyUsageOID.SERVER_AUTH])
    now = datetime.fromtimestamp(NOW, UTC)
    assert made.not_valid_after_utc == now + timedelta(days=30)
    assert now - timedelta(hours=1) < made.not_valid_before_utc < now
    assert issued.expire == NOW + 30 * 24 * 3600
    assert int(issued.serial, 16) == made.serial_number


def test_certificate_of_the_control_plane_is_for_clients(authority: Authority) -> None:
    own = authority.caller(NOW)
    made = read(own.certificate)
    made.verify_directly_issued_by(read(authority.certificate))
    assert described(made) == (["tiltyard://controlplane"], [], [ExtendedKeyUsageOID.CLIENT_AUTH])
    assert "PRIVATE" not in repr(own)


def test_certificate_of_the_listener_has_a_name_of_no_agent(authority: Authority) -> None:
    made = read(authority.listener(NOW).certificate)
    hosts = ["enrolment.tiltyard.internal"]
    assert described(made) == ([], hosts, [ExtendedKeyUsageOID.SERVER_AUTH])


def test_authority_cannot_sign_other_authorities(authority: Authority) -> None:
    made = read(authority.certificate)
    constraints = made.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert constraints.ca is True
    assert constraints.path_length == 0
    assert authority.fingerprint == made.fingerprint(hashes.SHA256()).hex()
    assert read(Authority.create(NOW).certificate).subject != made.subject


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Perform a mutual TLS handshake; raises SSLError."""
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in tuple(ends):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                ends.remove(end)


@pytest.mark.parametrize("again", [False, True], ids=["issued", "renewed"])
def test_issued_certificates_pass_strict_verification(tmp_path: Path, *, again: bool) -> None:
    """The default of Python 3.13 and later (RFC 5280)."""
    now = time.time()
    authority = Authority.create(now)
    key = a_key()
    if again:  # as read from its file
        authority = Authority.from_pem(authority.to_pem())
    agent = authority.sign_agent(a_request(key), ID, now).certificate
    caller = authority.caller(now)
    listener = authority.listener(now)
    for name, text in {
        "agent": pem_of(key) + agent,
        "caller": caller.key + caller.certificate,
        "listener": listener.key + listener.certificate,
    }.items():
        (tmp_path / name).write_bytes(text)
    for served, host in (("agent", agent_host(ID)), ("listener", ENROLMENT_HOST)):
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_verify_locations(cadata=authority.certificate.decode())
        server.verify_mode = ssl.CERT_REQUIRED
        server.verify_flags |= ssl.VERIFY_X509_STRICT
        server.load_cert_chain(tmp_path / served)
        client = trusting(authority.certificate)
        client.load_cert_chain(tmp_path / "caller")
        shake_hands(server, client, host)


def test_issued_certificate_does_not_outlive_the_authority(authority: Authority) -> None:
    late = authority.expire - 1
    assert authority.sign_agent(a_request(), ID, late).expire == authority.expire


def of_another_version(request: bytes) -> bytes:
    """Return a signing request of a version that does not exist."""
    der = x509.load_pem_x509_csr(request).public_bytes(serialization.Encoding.DER)
    version = bytes.fromhex("020100")
    assert der.index(version) < 10
    text = base64.encodebytes(der.replace(version, bytes.fromhex("020107"), 1))
    begin = b"-----BEGIN CERTIFICATE REQUEST-----\n"
    end = b"-----END CERTIFICATE REQUEST-----\n"
    return begin + text + end


HOSTILE: dict[str, Callable[[], bytes]] = {
    "CA:TRUE": lambda: a_request(extensions=[x509.BasicConstraints(ca=True, path_length=None)]),
    "another id": lambda: a_request(
        extensions=[
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier("tiltyard://agent/x")])
        ]
    ),
    "the control plane's name": lambda: a_request(subject="tiltyard://controlplane"),
    "rights of a caller": lambda: a_request(
        extensions=[x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])]
    ),
    "an RSA key": lambda: a_request(rsa.generate_private_key(65537, 2048)),
    "another curve": lambda: a_request(ec.generate_private_key(ec.SECP384R1())),
    "no request": lambda: b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n",
    "a certificate": lambda: Signer.new().sign(SERVES, ["tiltyard://agent/x"]).certificate,
    "another version": lambda: of_another_version(a_request()),
    "nothing": lambda: b"",
    "too much": lambda: a_request() + b"#" * 9000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_rejects_a_request_for_more_than_a_key(authority: Authority, kind: str) -> None:
    with pytest.raises(UnfitRequestError):
        authority.sign_agent(HOSTILE[kind](), ID, NOW)


def test_rejects_a_request_with_a_bad_signature(authority: Authority) -> None:
    lines = a_request().splitlines()
    for position, sign in enumerate(lines[-2][:-8]):  # somewhere in the signature
        changed = b"A" if sign != ord("A") else b"B"
        line = lines[-2][:position] + changed + lines[-2][position + 1 :]
        with pytest.raises(UnfitRequestError):
            authority.sign_agent(b"\n".join([*lines[:-2], line, lines[-1], b""]), ID, NOW)


def test_certificate_is_due_after_two_thirds_of_its_life(authority: Authority) -> None:
    expire = NOW + 30 * 24 * 3600
    due = NOW + 20 * 24 * 3600
    assert not authority.is_due(expire, due - 1)
    assert authority.is_due(expire, due)


def test_certificate_that_is_not_valid_yet_is_due(authority: Authority) -> None:
    """The clock was ahead when it was signed."""
    made = authority.sign_agent(a_request(), ID, NOW)
    begin = read(made.certificate).not_valid_before_utc.timestamp()
    assert authority.is_due(made.expire, begin - 1)
    assert not authority.is_due(made.expire, begin)


async def opened(path: Path, enrolled: int = 0) -> Issuer:
    issuer = Issuer(path, SystemClock())
    try:
        await issuer.open(enrolled=enrolled)
    finally:
        await issuer.close()
    return issuer


async def test_authority_is_created_once_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "authority.pem"
    first = await opened(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [child.name for child in path.parent.iterdir()] == ["authority.pem"]
    assert (await opened(path)).authority.fingerprint == first.authority.fingerprint


async def test_concurrent_creation_yields_one_authority(tmp_path: Path) -> None:
    path = tmp_path / "authority.pem"
    made = await asyncio.gather(*(opened(path) for _ in range(8)))
    assert len({issuer.authority.fingerprint for issuer in made}) == 1


async def test_lost_authority_is_reported_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "authority.pem"
    with pytest.raises(StoreError, match="is missing, and 3 agents were enrolled"):
        await opened(path, enrolled=3)
    assert not path.exists()


def with_an_unknown_kind_of_key(authority: bytes) -> bytes:
    """Return an authority's file with a changed byte."""
    key, mark, certificate = authority.partition(b"-----BEGIN CERT")
    der = base64.b64decode(b"".join(key.splitlines()[1:-1]))
    kind = bytes.fromhex("06072a8648ce3d0201")  # an elliptic curve
    assert kind in der
    changed = base64.encodebytes(der.replace(kind, kind[:-1] + b"\x00"))
    begin = b"-----BEGIN PRIVATE KEY-----\n"
    end = b"-----END PRIVATE KEY-----\n"
    return begin + changed + end + mark + certificate


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no key",
        with_an_unknown_kind_of_key(Authority.create(NOW).to_pem()),
        None,
    ],
    ids=["empty", "no key", "a changed byte", "another certificate"],
)
async def test_damaged_authority_is_reported_and_kept(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "authority.pem"
    if text is None:  # the key of one and the certificate of another
        text = Authority.create(NOW).to_pem().partition(b"-----BEGIN CERT")[0]
        text += Authority.create(NOW).certificate
    path.write_bytes(text)
    with pytest.raises(StoreError, match="damaged"):
        await opened(path)
    assert path.read_bytes() == text
