"""The certificate for TLS ports; the last valid pair stays in use until renewed files match."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tiltyard.runtime.atomic_file import Signature, signature

MAX_BYTES = 1 << 20  # A chain has a few thousand
WARNED_DAYS = 14
"""Remaining days at which renewal is late; 90-day certificates are renewed 30 days before."""


class UnfitCertificateError(ValueError):
    """The files cannot be used as a certificate; the text says why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A loaded certificate and key; times in Unix time, `signature` identifies the files."""

    context: ssl.SSLContext
    begin_time: float
    expire_time: float
    signature: Signature

    def is_valid(self, now: float) -> bool:
        """Return whether the certificate is valid at `now`."""
        return self.begin_time <= now <= self.expire_time


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths of the chain and its key."""

    certificate: Path
    key: Path

    def signature(self) -> Signature:
        """Identify the current files behind the paths. Blocks."""
        return signature(self.certificate, self.key)

    def load(self) -> Pair:
        """Load both files; raises UnfitCertificateError. Blocks."""
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm

        try:
            found = self.signature()  # first, so that later changes are noticed
            with self.certificate.open("rb") as file:
                leaf = x509.load_pem_x509_certificate(file.read(MAX_BYTES))
            context = _context()
            # No prompt on a terminal: a key that needs a password is rejected.
            context.load_cert_chain(self.certificate, self.key, password="")
            begin = leaf.not_valid_before_utc
            end = leaf.not_valid_after_utc
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
    """TLS 1.2 or later, without renegotiation; EOF without close_notify is accepted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


class HostCertificate:
    """The pair in use, and the problem of the files, if any; without files there is none."""

    def __init__(self, files: CertificateFiles | None) -> None:
        self.files = files
        self.pair: Pair | None = None
        self.problem = ""  # Why the files are not in use; empty if they are

    def look(self, now: float) -> None:
        """Load the files if they have changed; `now` in Unix time. Blocks."""
        if self.files is None:
            return
        problem = ""
        try:
            if self.pair is None or self.files.signature() != self.pair.signature:
                found = self.files.load()
                # An expired or future one does not replace another.
                if self.pair is None or found.is_valid(now):
                    self.pair = found
                else:
                    why = beginning(found.begin_time, now) or _ending(found.expire_time, now)
                    problem = f"{self.files.certificate} {why}"
        except UnfitCertificateError as error:
            problem = str(error)
        self.problem = problem

    def warnings(self, now: float) -> tuple[str, ...]:
        """Return warnings for the host's report."""
        found = []
        if self.problem:
            kept = "the last one stays in use" if self.pair else "no TLS port is served"
            found.append(f"cannot use the certificate for TLS ports, {kept}: {self.problem}")
        if self.pair is not None and (ends := _ending(self.pair.expire_time, now)):
            found.append(f"the certificate for TLS ports {ends}: renew it")
        if self.pair is not None and (begins := beginning(self.pair.begin_time, now)):
            found.append(f"the certificate for TLS ports {begins}: is the clock right?")
        return tuple(found)


def beginning(begin_time: float, now: float) -> str:
    """Return `begins on DATE`; empty once the certificate is valid."""
    return f"begins on {_day(begin_time)}" if begin_time > now else ""


def _ending(expire_time: float, now: float) -> str:
    """Return `ends on DATE` or `ended on DATE`; empty while renewal is not late."""
    if expire_time < now:
        return f"ended on {_day(expire_time)}"
    if expire_time - now < WARNED_DAYS * 86400:
        return f"ends on {_day(expire_time)}"
    return ""


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat()
