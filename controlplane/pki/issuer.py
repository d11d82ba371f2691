"""Loads, stores and uses the deployment's certificate authorities."""

import asyncio
import os
import ssl
import tempfile
from pathlib import Path

from controlplane.domain.access.enrolment import Issued
from controlplane.domain.errors import StoreError
from controlplane.pki.authorities import Authorities
from controlplane.pki.authority import Authority, Identity
from controlplane.state_dir.private_files import read_or_create, write_private
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads

log = get_logger(__name__)

MAX_FILE_BYTES = 16384  # More than two keys and certificates need


class Issuer:
    """Owns the authorities, the control plane's certificates and the thread for file access."""

    authorities: Authorities
    caller: Identity  # Client identity for calls to agents

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._threads = Threads(1, "authority")
        self.lock = asyncio.Lock()
        """Held while authorities change, and while a token is made that names one."""
        self._listener: Identity
        self._former_caller: Identity | None = None
        self._tls: ssl.SSLContext | None = None
        self._served: Identity | None = None

    @property
    def authority(self) -> Authority:
        """The signing authority."""
        return self.authorities.current

    async def open(self, *, enrolled: int = 0) -> None:
        """Read the authorities. A missing file is created if no agents are `enrolled`.

        Raises:
            StoreError: The file is unreadable, damaged or missing, or cannot be written.
        """
        self.authorities = await self._threads.run(self._open, enrolled)
        self._issue_own(self._clock.time())

    async def close(self) -> None:
        """Stop the thread. Idempotent."""
        await self._threads.close()

    def sign_agent(self, request: bytes, agent_id: str, authority: str | None = None) -> Issued:
        """Issue an agent's certificate. `authority`: preferred issuer, as a fingerprint."""
        signer = self.authorities.of(authority)
        return signer.sign_agent(request, agent_id, self._clock.time())

    def caller_of(self, authority: str | None) -> Identity:
        """Return the client identity for an agent whose certificate this authority issued."""
        of_former = self.authorities.of(authority) is self.authorities.former
        return self._former_caller if of_former and self._former_caller else self.caller

    async def trust(self, authorities: Authorities) -> None:
        """Replace the authorities. Durable on return, without an `await` after the change.

        The caller must then reconnect to hosts of the former authority and call `show_current`.

        Raises:
            StoreError: The file cannot be written; nothing has changed.
        """
        try:
            await self._threads.run(write_private, self._path, authorities.to_pem())
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}") from error
        self.authorities = authorities
        self._issue_own(self._clock.time())

    async def show_current(self) -> None:
        """Serve the enrolment listener with a certificate of the current authority."""
        try:
            await self._show_listener()
        except OSError as error:  # retried by the next `renew_own`
            log.error(  # noqa: TRY400 - no traceback needed
                "enrolment listener keeps its previous certificate", error=str(error)
            )

    async def listener_tls(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Load the enrolment certificate into a context, now and after renewals."""
        self._tls = context
        await self._show_listener()
        return context

    async def renew_own(self) -> bool:
        """Renew the control plane's certificates if due; return whether they were.

        Raises:
            OSError: The disk is full.
            ValueError: The authority has expired or the clock is wrong; nothing has changed.
        """
        now = self._clock.time()
        if self.authority.is_due(self.caller.expire, now):
            if self.authority.expire <= now:
                raise ValueError("the authority has expired: `authority rotate` creates another")
            self._issue_own(now)
        elif self._tls is None or self._served is self._listener:
            return False
        await self._show_listener()
        log.info("the control plane has renewed its own certificates")
        return True

    def _issue_own(self, now: float) -> None:
        current = self.authorities.current
        former = self.authorities.former
        self._former_caller = None if former is None else former.caller(now)
        self.caller = current.caller(now)
        self._listener = current.listener(now)

    async def _show_listener(self) -> None:
        if self._tls is not None:
            listener = self._listener
            await self._threads.run(_load, self._tls, listener, self._path.parent)
            self._served = listener

    def _open(self, enrolled: int) -> Authorities:
        try:
            text = read_or_create(
                self._path, MAX_FILE_BYTES, lambda: self._create(enrolled), what="authority"
            )
            return Authorities.from_pem(text)
        except OSError as error:
            raise StoreError(f"cannot use {self._path}: {error.strerror}") from error
        except ValueError as error:
            raise StoreError(f"cannot use {self._path}: it is damaged: {error}") from error

    def _create(self, enrolled: int) -> bytes:
        if enrolled:
            raise StoreError(
                f"cannot open {self._path}: it is missing, and {enrolled} agents were"
                " enrolled with it: put a copy of it back, or create another with `init` and enrol"
                " every host again"
            )
        return Authority.create(self._clock.time()).to_pem()


def _load(context: ssl.SSLContext, identity: Identity, folder: Path) -> None:
    """Load a certificate into a context; `ssl` reads it only from a file."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".listener-") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(identity.key + identity.certificate)
        file.flush()
        context.load_cert_chain(file.name)
