"""The certificate with which a host terminates TLS: two files that are renewed externally.

They are replaced one after the other, so that they may not match for a moment: the last valid pair
stays in use until the next one is valid.
"""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from tiltyard.runtime.atomic_file import Signature, signature

MAX_BYTES = 1 << 20
"""A chain has some thousands."""
WARNED_DAYS = 14
"""Left of a certificate when its renewal is late: those of 90 days are renewed 30 before."""


class UnfitCertificateError(ValueError):
    """The files are no certificate to serve with; the text says why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, ready for handshakes; times in Unix time.

    `signature` distinguishes its files from replacements.
    """

    context: ssl.SSLContext
    begin_time: float
    expire_time: float
    signature: Signature

    def is_valid(self, now: float) -> bool:
        """Return whether clients accept it."""
        return self.begin_time <= now <= self.expire_time


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the chain and its key are."""

    certificate: Path
    key: Path

    def signature(self) -> Signature:
        """Identify the files that the names lead to now. Blocks."""
        return signature(self.certificate, self.key)

    def load(self) -> Pair:
        """Read both. Blocks.

        Raises:
            UnfitCertificateError: It says what is wrong with them.
        """
        try:
            found = self.signature()  # first: what comes after it is looked at again
            with self.certificate.open("rb") as file:
                leaf = x509.load_pem_x509_certificate(file.read(MAX_BYTES))
            context = _context()
            # No prompt on a terminal: a key that needs a password is rejected.
            context.load_cert_chain(self.certificate, self.key, password="")
            begin, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        except ssl.SSLError as error:
            cause = (error.reason or "they cannot be read").replace("_", " ").lower()
            raise UnfitCertificateError(f"{self.certificate} with {self.key}: {cause}") from error
        except OSError as error:
            path = error.filename or f"{self.certificate} with {self.key}"
            raise UnfitCertificateError(f"{path}: {error.strerror or error}") from error
        except (TypeError, ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
            raise UnfitCertificateError(f"{self.certificate} is no certificate") from error
        return Pair(context, begin.timestamp(), end.timestamp(), found)


def _context() -> ssl.SSLContext:
    """TLS 1.2 and later, without renegotiation; an end of the connection ends TLS as well."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


class HostCertificate:
    """The pair in use, and what is wrong with the one in the files."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self.pair: Pair | None = None
        self.problem = ""
        """Why the files are not what is in use; empty when they are."""

    def look(self, now: float) -> None:
        """Take the files in, if they are others than those in use; `now` in Unix time. Blocks."""
        try:
            if self.pair is None or self._files.signature() != self.pair.signature:
                self.pair = self._fit(self._files.load(), now)
        except UnfitCertificateError as error:
            self.problem = str(error)
        else:
            self.problem = ""

    def warnings(self, now: float) -> tuple[str, ...]:
        """What the host's report says of it."""
        found = []
        if self.problem:
            kept = "the last one stays in use" if self.pair else "no TLS port is served"
            found.append(f"cannot use the certificate for TLS ports, {kept}: {self.problem}")
        if self.pair is not None and (ends := _ending(self.pair.expire_time, now)):
            found.append(f"the certificate for TLS ports {ends}: renew it")
        if self.pair is not None and (begins := beginning(self.pair.begin_time, now)):
            found.append(f"the certificate for TLS ports {begins}: is the clock right?")
        return tuple(found)

    def _fit(self, found: Pair, now: float) -> Pair:
        """One that clients refuse does not take the place of another."""
        if self.pair is None or found.is_valid(now):
            return found
        why = beginning(found.begin_time, now) or _ending(found.expire_time, now)
        raise UnfitCertificateError(f"{self._files.certificate} {why}")


def beginning(begin_time: float, now: float) -> str:
    """When a certificate becomes valid, as part of a sentence; empty once it is."""
    return f"begins on {_day(begin_time)}" if begin_time > now else ""


def _ending(expire_time: float, now: float) -> str:
    """When a certificate ends, as part of a sentence; empty while that is far."""
    if expire_time < now:
        return f"ended on {_day(expire_time)}"
    if expire_time - now < WARNED_DAYS * 86400:
        return f"ends on {_day(expire_time)}"
    return ""


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat()
