import asyncio
import shutil
from pathlib import Path

import pytest
from cryptography import x509

from controlplane.api.enrolling import enrolling_tls
from controlplane.backups.backup import check_keys
from controlplane.domain.errors import StoreError
from controlplane.pki.authorities import Authorities
from controlplane.pki.authority import AUTHORITY_LIFE, ENDING, Authority, Identity
from controlplane.pki.issuer import Issuer
from tests.support.certificates import a_request
from tests.support.fake_clock import FakeClock
from tiltyard.runtime.clock import SystemClock

NOW = 1_767_225_600.0
ID = "0b6c2f5e-0d3f-4d0e-9d7c-0a5f8c1d2e3f"
FIRST = Authority.create(NOW)


def fingerprints(authorities: Authorities) -> list[str]:
    return [authority.fingerprint for authority in authorities]


def is_signed_by(certificate: bytes, authority: Authority) -> bool:
    issuer = x509.load_pem_x509_certificate(authority.certificate).subject
    return x509.load_pem_x509_certificate(certificate).issuer == issuer


def test_rotation_survives_a_round_trip_and_older_readers_see_the_new_authority() -> None:
    both = Authorities(FIRST).rotated(NOW)
    assert fingerprints(Authorities.from_pem(both.to_pem())) == fingerprints(both)
    assert both.former is FIRST
    assert Authority.from_pem(both.to_pem()).fingerprint == both.current.fingerprint
    assert both.trusted == both.current.certificate + FIRST.certificate
    assert fingerprints(both.finished()) == [both.current.fingerprint]


def test_rejects_files_without_one_or_two_authorities() -> None:
    both = Authorities(FIRST).rotated(NOW)
    third = Authority.create(NOW)
    for text in (b"", both.to_pem() + third.to_pem(), both.to_pem()[:-40]):
        with pytest.raises(ValueError, match=r"."):
            Authorities.from_pem(text)
    mixed = FIRST.to_pem().replace(FIRST.certificate, third.certificate)
    with pytest.raises(ValueError, match="do not belong together"):
        Authorities.from_pem(third.to_pem() + mixed)


def test_authority_is_ending_in_its_last_year() -> None:
    ending = NOW + (AUTHORITY_LIFE - ENDING).total_seconds()
    assert FIRST.begin == NOW
    assert not FIRST.is_ending(ending)
    assert FIRST.is_ending(ending + 1)


def test_check_of_a_backup_during_a_rotation_reads_both_authorities(tmp_path: Path) -> None:
    both = Authorities(FIRST).rotated(NOW).to_pem()
    (tmp_path / "authority.pem").write_bytes(both)
    check_keys(tmp_path)
    (tmp_path / "authority.pem").write_bytes(both[:-40])
    with pytest.raises(StoreError, match=r"authority\.pem is damaged"):
        check_keys(tmp_path)


async def test_calls_and_renews_each_host_with_its_own_authority(issuer: Issuer) -> None:
    former = issuer.authority
    assert is_signed_by(issuer.caller_of(former.fingerprint).certificate, former)
    await issuer.trust(issuer.authorities.rotated(NOW))
    current = issuer.authority
    assert issuer.authorities.former is former
    for known, signer in ((former.fingerprint, former), (current.fingerprint, current)):
        assert is_signed_by(issuer.caller_of(known).certificate, signer)
        issued = issuer.sign_agent(a_request(), ID, known)
        assert is_signed_by(issued.certificate, signer)
        assert issued.authority == known
    assert issuer.sign_agent(a_request(), ID).authority == current.fingerprint
    await issuer.trust(issuer.authorities.finished())
    assert issuer.caller_of(former.fingerprint) == issuer.caller
    assert issuer.authority is current
    assert issuer.authorities.former is None


async def test_enrolment_listener_serves_the_current_authority_after_a_full_disk(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await issuer.listener_tls(enrolling_tls())
    assert not await issuer.renew_own()
    shown: list[bytes] = []

    def load(_context: object, identity: Identity, _folder: Path) -> None:
        shown.append(identity.certificate)
        if len(shown) == 1:
            raise OSError(28, "no space left on device")

    monkeypatch.setattr("controlplane.pki.issuer._load", load)
    await issuer.trust(issuer.authorities.rotated(NOW))
    await issuer.show_current()
    assert await issuer.renew_own()
    assert is_signed_by(shown[1], issuer.authority)
    assert not await issuer.renew_own()
    assert len(shown) == 2


async def test_trust_is_durable_or_changes_nothing(issuer: Issuer, tmp_path: Path) -> None:
    made = issuer.authorities.rotated(NOW)
    await issuer.trust(made)
    again = Issuer(tmp_path / "authority.pem", SystemClock())
    await again.open()
    assert fingerprints(again.authorities) == fingerprints(made)
    await again.close()
    caller = issuer.caller
    await asyncio.to_thread(shutil.rmtree, tmp_path)
    await asyncio.to_thread(tmp_path.touch)
    with pytest.raises(StoreError, match="cannot write"):
        await issuer.trust(made.finished())
    assert issuer.authorities is made
    assert issuer.caller == caller


async def test_expired_former_authority_does_not_prevent_renewals(tmp_path: Path) -> None:
    """A host that is offline keeps a rotation open."""
    late = FIRST.expire + 3600
    both = Authorities(FIRST).rotated(FIRST.expire - 3600)
    await asyncio.to_thread((tmp_path / "authority.pem").write_bytes, both.to_pem())
    clock = FakeClock(late)
    issuer = Issuer(tmp_path / "authority.pem", clock)
    await issuer.open()
    first = issuer.caller
    clock.jump(25 * 24 * 3600)
    assert await issuer.renew_own()
    assert issuer.caller.expire > first.expire
    assert issuer.caller.key != first.key
    assert is_signed_by(issuer.caller_of(both.current.fingerprint).certificate, both.current)
    await issuer.close()
