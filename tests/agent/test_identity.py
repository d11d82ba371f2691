"""A host's certificate and its renewal: nothing is installed that is not for it."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from agent.errors import InvalidArgument
from agent.identity import FILE, HostIdentity, Identity, UnfitIdentity, make_request
from tests.agent.test_transport import HOST, OURS, URI, an_identity
from tests.certificates import SERVES, Signer


@pytest.fixture
def host(tmp_path: Path) -> HostIdentity:
    an_identity().save(tmp_path / FILE)
    return HostIdentity(tmp_path, asyncio.to_thread, time.time)


async def now_is(host: HostIdentity) -> Identity:
    found = await asyncio.to_thread(Identity.read, host.path)
    assert found is not None
    return found


def test_a_request_says_nothing_but_a_key() -> None:
    _, text = make_request()
    request = x509.load_pem_x509_csr(text)
    assert request.is_signature_valid
    assert not request.subject.rdns
    assert not list(request.attributes)


async def test_a_renewed_certificate_has_a_fresh_key(host: HostIdentity) -> None:
    before = await now_is(host)
    first, request = await host.request(), await host.request()
    assert request != first
    signed = OURS.answer(request, [URI], [HOST])
    await host.install(signed)
    renewed = await now_is(host)
    assert (renewed.certificate, renewed.authority) == (signed, before.authority)
    assert renewed.key != before.key
    assert host.path.stat().st_mode & 0o777 == 0o600
    await host.install(signed)  # whose answer was lost
    assert await now_is(host) == renewed


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "another authority's": (
        lambda asked: Signer.new("ours").answer(asked, [URI], [HOST]),
        "another authority",
    ),
    "another host's": (
        lambda asked: OURS.answer(asked, ["tiltyard://agent/two"], [HOST]),
        "another host",
    ),
    "for another key": (
        lambda _: OURS.sign(SERVES, [URI], [HOST]).certificate,
        "another key",
    ),
    "expired": (
        lambda asked: OURS.answer(asked, [URI], [HOST], timedelta(hours=-1)),
        "not valid now",
    ),
    "nameless": (lambda asked: OURS.answer(asked, [], [HOST]), "not a certificate for a host"),
    "no certificate": (lambda _: b"certificate", "not a certificate for a host"),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_is_not_for_this_host_is_not_installed(host: HostIdentity, kind: str) -> None:
    before = await now_is(host)
    asked = await host.request()
    answer, cause = HOSTILE[kind]
    with pytest.raises(InvalidArgument, match=cause):
        await host.install(answer(asked))
    assert await now_is(host) == before
    await host.install(OURS.answer(asked, [URI], [HOST]))  # and the right one still may come


async def test_nothing_is_installed_that_was_not_asked_for(host: HostIdentity) -> None:
    with pytest.raises(InvalidArgument, match="none was asked for"):
        await host.install(OURS.sign(SERVES, [URI], [HOST]).certificate)


CHANGED = {
    "the kind of the key": ("06072a8648ce3d0201", "06072a8648ce3d0200"),
    "the curve": ("06082a8648ce3d030107", "06082a8648ce3d030100"),
    "the version of the certificate": ("a003020102", "a003020142"),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_an_identity_in_which_a_bit_has_changed_is_damaged(tmp_path: Path, kind: str) -> None:
    """And is no other error, which the agent would end with."""
    path, (old, new) = tmp_path / FILE, map(bytes.fromhex, CHANGED[kind])
    identity = an_identity()
    key, certificate = (_changed(text, old, new) for text in (identity.key, identity.certificate))
    assert (key, certificate) != (identity.key, identity.certificate)
    Identity(key, certificate, identity.authority).save(path)
    with pytest.raises(UnfitIdentity, match="damaged"):
        Identity.read(path)


def _changed(text: bytes, old: bytes, new: bytes) -> bytes:
    begin, *lines, end = text.splitlines()
    der = base64.b64decode(b"".join(lines)).replace(old, new)
    return b"\n".join([begin, base64.b64encode(der), end, b""])


async def test_a_host_that_is_not_enrolled_has_nothing_to_renew(tmp_path: Path) -> None:
    host = HostIdentity(tmp_path, asyncio.to_thread, time.time)
    with pytest.raises(InvalidArgument, match="not enrolled"):
        await host.request()
    await asyncio.to_thread((tmp_path / FILE).write_bytes, b"damaged")
    with pytest.raises(InvalidArgument, match="damaged"):
        await host.install(b"certificate")
