"""Renewal of a host's certificate; only its own is installed."""

import asyncio
import base64
import ssl
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from agent.domain.errors import InvalidArgumentError
from agent.rpc.identity import FILE, Identity, UnfitIdentityError
from agent.rpc.renewal import HostIdentity
from agent.rpc.signing import make_request
from tests.agent.test_tls_server import HOST, OURS, URI, an_identity
from tests.support.certificates import SERVES, Signer
from tests.support.hold import held_before


@pytest.fixture
def host(tmp_path: Path) -> HostIdentity:
    an_identity().save(tmp_path / FILE)
    return HostIdentity(tmp_path, asyncio.to_thread, time.time)


async def now_is(host: HostIdentity) -> Identity:
    found = await asyncio.to_thread(Identity.read, host.path)
    assert found is not None
    return found


def test_request_contains_only_a_key() -> None:
    _, text = make_request()
    request = x509.load_pem_x509_csr(text)
    assert request.is_signature_valid
    assert request.subject.rdns == []
    assert list(request.attributes) == []


async def test_renewed_certificate_has_new_key(host: HostIdentity) -> None:
    before = await now_is(host)
    first = await host.request()
    request = await host.request()
    assert request != first
    signed = OURS.answer(request, [URI], [HOST])
    await host.install(signed)
    renewed = await now_is(host)
    assert renewed.certificate == signed
    assert renewed.authority == before.authority
    assert renewed.key != before.key
    assert host.path.stat().st_mode & 0o777 == 0o600
    await host.install(signed)  # its response was lost
    assert await now_is(host) == renewed


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "other signer": (lambda it: Signer.new("ours").answer(it, [URI], [HOST]), "another authority"),
    "other host": (lambda it: OURS.answer(it, ["tiltyard://agent/two"], [HOST]), "another host"),
    "for another key": (lambda _: OURS.sign(SERVES, [URI], [HOST]).certificate, "another key"),
    "expired": (lambda it: OURS.answer(it, [URI], [HOST], timedelta(hours=-1)), "not valid now"),
    "nameless": (lambda asked: OURS.answer(asked, [], [HOST]), "not a certificate for a host"),
    "no certificate": (lambda _: b"certificate", "not a certificate for a host"),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_rejects_certificate_not_for_this_host(host: HostIdentity, kind: str) -> None:
    before = await now_is(host)
    asked = await host.request()
    answer, cause = HOSTILE[kind]
    with pytest.raises(InvalidArgumentError, match=cause):
        await host.install(answer(asked))
    assert await now_is(host) == before
    await host.install(OURS.answer(asked, [URI], [HOST]))  # the valid one is still accepted


async def test_rejects_certificate_without_request(host: HostIdentity) -> None:
    with pytest.raises(InvalidArgumentError, match="none was requested"):
        await host.install(OURS.sign(SERVES, [URI], [HOST]).certificate)


CHANGED = {
    "the kind of the key": ("06072a8648ce3d0201", "06072a8648ce3d0200"),
    "the curve": ("06082a8648ce3d030107", "06082a8648ce3d030100"),
    "the version of the certificate": ("a003020102", "a003030102"),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_reports_flipped_bits_as_damage(tmp_path: Path, kind: str) -> None:
    """Any other error would end the agent."""
    path = tmp_path / FILE
    (old, new) = map(bytes.fromhex, CHANGED[kind])
    identity = an_identity()
    key, certificate = (_changed(text, old, new) for text in (identity.key, identity.certificate))
    changed = Identity(key, certificate, identity.authority)
    assert changed != identity
    changed.save(path)
    with pytest.raises(UnfitIdentityError, match="damaged"):
        Identity.read(path)


def _changed(text: bytes, old: bytes, new: bytes) -> bytes:
    begin, *lines, end = text.splitlines()
    der = base64.b64decode(b"".join(lines)).replace(old, new)
    return b"\n".join([begin, base64.b64encode(der), end, b""])


def test_reads_one_version_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / FILE
    identity = an_identity()
    identity.save(path)

    class Context(ssl.SSLContext):
        def load_cert_chain(self, *arguments: Any, **named: Any) -> None:
            an_identity().save(path)
            path.write_bytes(b"")
            super().load_cert_chain(*arguments, **named)

    monkeypatch.setattr(ssl, "SSLContext", Context)
    assert Identity.read(path) == identity


async def test_rejects_renewal_before_enrolment(tmp_path: Path) -> None:
    host = HostIdentity(tmp_path, asyncio.to_thread, time.time)
    with pytest.raises(InvalidArgumentError, match="not enrolled"):
        await host.request()
    await asyncio.to_thread((tmp_path / FILE).write_bytes, b"damaged")
    with pytest.raises(InvalidArgumentError, match="damaged"):
        await host.install(b"certificate")


def authorities(*signers: Signer) -> bytes:
    return b"".join(signer.certificate for signer in signers)


THEIRS = Signer.new("theirs")  # The authority that replaces the current one


async def test_replaces_authority_in_two_steps(host: HostIdentity) -> None:
    before = await now_is(host)
    signed = THEIRS.answer(await host.request(), [URI], [HOST])
    for _ in range(2):  # the first response was lost
        await host.install(signed, authorities(THEIRS, OURS))
        moved = await now_is(host)
        assert moved.trusted == authorities(THEIRS, OURS)
        assert moved.certificate == signed
        assert moved.uri == before.uri
    for _ in range(2):
        await host.install(b"", authorities(THEIRS))
        assert await now_is(host) == Identity(moved.key, signed, THEIRS.certificate)
    await host.install(THEIRS.answer(await host.request(), [URI], [HOST]))  # a later renewal
    assert (await now_is(host)).trusted == authorities(THEIRS)


WRONG: dict[str, tuple[bytes, str]] = {
    "not the signer first": (authorities(OURS, THEIRS), "another authority"),
    "without the signer": (authorities(OURS), "another authority"),
    "three": (authorities(THEIRS, OURS, Signer.new()), "one or two authorities"),
    "a host's": (OURS.sign(SERVES, [URI], [HOST]).certificate, "no authority|one or two"),
    "no certificate": (b"authority", "no authority|one or two"),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_rejects_authorities_without_signer(host: HostIdentity, kind: str) -> None:
    before = await now_is(host)
    text, cause = WRONG[kind]
    signed = THEIRS.answer(await host.request(), [URI], [HOST])
    with pytest.raises(InvalidArgumentError, match=cause):
        await host.install(signed, text)
    with pytest.raises(InvalidArgumentError, match="another authority"):
        await host.install(b"", authorities(THEIRS))  # without a certificate of theirs
    assert await now_is(host) == before


async def test_damaged_second_authority_is_damage_of_the_identity(host: HostIdentity) -> None:
    signed = THEIRS.answer(await host.request(), [URI], [HOST])
    await host.install(signed, authorities(THEIRS, OURS))
    text = await asyncio.to_thread(host.path.read_bytes)
    begin = text.rindex(b"-----BEGIN CERTIFICATE-----\n") + 60
    damaged = text[:begin] + b"####" + text[begin + 4 :]
    await asyncio.to_thread(host.path.write_bytes, damaged)
    with pytest.raises(UnfitIdentityError, match="damaged"):
        await now_is(host)


async def test_file_names_the_signer_before_another_authority(host: HostIdentity) -> None:
    """An agent of an earlier version knows one authority: the first one."""
    signed = THEIRS.answer(await host.request(), [URI], [HOST])
    await host.install(signed, authorities(THEIRS, OURS))
    text = await asyncio.to_thread(host.path.read_bytes)
    leaf, authority, _ = x509.load_pem_x509_certificates(text)
    leaf.verify_directly_issued_by(authority)


async def test_keeps_key_requested_during_installation(host: HostIdentity) -> None:
    """The control plane was killed during the first, and the next one requests at once."""
    signed = OURS.answer(await host.request(), [URI], [HOST])
    writing = held_before(host, "run", lambda work, *_: work.__name__ == "save")
    installing = asyncio.create_task(host.install(signed), name="an installation")
    await writing.reached.wait()
    asked = await host.request()
    writing.set()
    await installing
    renewed = OURS.answer(asked, [URI], [HOST])
    await host.install(renewed)
    assert (await now_is(host)).certificate == renewed
