"""The certificate of TLS ports: renewal, damage and expiry."""

import ssl
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from agent.domain.errors import NoCertificateError
from agent.network.tls_certificate import CertificateFiles
from tests.support.agent.tls_players import issue, trusting
from tests.support.agent.tls_served import AUTHORITY, echo, is_echoed, serving

DAY = 86400.0  # Seconds


async def test_tls_1_1_is_refused(tmp_path: Path) -> None:
    context = trusting(AUTHORITY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(tmp_path, echo) as served:
        with pytest.raises(OSError):  # noqa: PT011 - an alert, or the reset that comes before it
            async with served.player(context):
                pass
        assert served.game.connections == 0


def leaf(files: CertificateFiles) -> bytes:
    loaded = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    return loaded.public_bytes(Encoding.DER)


async def test_new_connections_use_renewed_certificate(tmp_path: Path) -> None:
    """Renews like certbot, which replaces one symlink after the other."""
    old = issue(AUTHORITY, tmp_path / "old")
    new = issue(AUTHORITY, tmp_path / "new")
    files = CertificateFiles(tmp_path / "fullchain.pem", tmp_path / "privkey.pem")
    links = [files.certificate, files.key]
    for link in links:
        link.symlink_to(old.certificate.with_name(link.name))
    async with serving(tmp_path, echo, files) as served, served.player() as player:
        assert player.certificate() == leaf(old)
        for link in links:
            beside = tmp_path / "beside"
            beside.symlink_to(new.certificate.with_name(link.name))
            beside.replace(link)
            await served.tls.look()
            if link == files.certificate:  # they do not match now
                assert "key values mismatch" in served.tls.warnings[0]
                async with served.player() as between:
                    assert between.certificate() == leaf(old)
        assert not served.tls.warnings
        async with served.player() as later:
            assert later.certificate() == leaf(new)
        await is_echoed(player)


@pytest.mark.parametrize(
    "harm",
    [
        lambda files: files.certificate.write_bytes(b"no certificate\n"),
        lambda files: files.certificate.unlink(),
        lambda files: files.key.write_bytes(b""),
        lambda files: issue(AUTHORITY, files.key.parent, life=timedelta(days=-1)),
    ],
    ids=["garbage", "gone", "no key", "old"],
)
async def test_keeps_last_pair_if_files_are_invalid(
    tmp_path: Path, harm: Callable[[CertificateFiles], object]
) -> None:
    async with serving(tmp_path, echo) as served:
        before = leaf(served.files)
        notified = len(served.notified)
        harm(served.files)
        await served.tls.look()
        await served.tls.look()
        [warning] = served.tls.warnings
        assert warning.startswith("cannot use the certificate for TLS ports, the last one stays")
        assert str(tmp_path / "pair") in warning
        assert len(served.notified) == notified + 1
        assert served.tls.available
        async with served.player() as player:
            assert player.certificate() == before


async def test_warns_two_weeks_before_certificate_expires(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        assert not served.tls.warnings
        served.clock.jump(50 * DAY)
        await served.tls.look()
        assert "the certificate for TLS ports ends on" in served.tls.warnings[0]
        served.tls.check(served.session.spec)


async def test_refuses_sessions_after_certificate_has_expired(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        served.clock.jump(70 * DAY)
        await served.tls.look()
        assert "the certificate for TLS ports ended on" in served.tls.warnings[0]
        assert not served.tls.available
        with pytest.raises(NoCertificateError):
            served.tls.check(served.session.spec)


async def test_refuses_certificate_that_is_not_valid_yet(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        served.clock.jump(-3 * DAY)
        await served.tls.look()
        assert "the certificate for TLS ports begins on" in served.tls.warnings[0]
        assert not served.tls.available
