"""The authority of this deployment at work: kept in a file, used by the program that serves."""

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from controlplane.authority import Authority, Identity, Issued
from controlplane.clock import Clock
from controlplane.errors import StoreError
from controlplane.private_files import create_private, read_private

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

MAX_FILE_BYTES = 16384
"""More than a key and a certificate have."""


class Issuer:
    """Owns the authority, our own certificates, and the thread on which files of them are read."""

    authority: Authority
    caller: Identity
    """What agents are called with."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Name the authority's file; nothing is read before `open`."""
        self._path = path
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, "authority")
        self._listener: Identity
        self._tls: ssl.SSLContext | None = None

    async def open(self, *, enrolled: int = 0) -> None:
        """Read the authority, or make it where no agent was `enrolled` with one that is gone.

        Raises:
            StoreError: It can be neither read nor made, or was lost.
        """
        self.authority = await self._run(lambda: self._open(enrolled))
        self.caller = self.authority.caller(self._clock.now_ms())
        self._listener = self.authority.listener(self._clock.now_ms())

    def close(self) -> None:
        """Let the thread end. Idempotent."""
        self._pool.shutdown(wait=False)  # what it does takes milliseconds

    def sign_agent(self, request: bytes, agent_id: str) -> Issued:
        """Sign for an agent. Raises as `Authority.sign_agent`."""
        return self.authority.sign_agent(request, agent_id, self._clock.now_ms())

    async def listener_tls(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Have a context serve as the enrolment listener, from now on and after renewals."""
        await self._load(context, self._listener)
        self._tls = context
        return context

    async def renew_own(self) -> bool:
        """Make our own certificates anew when they are due; tell whether that was so.

        Connections that are open go on with what they began with.
        """
        now_ms = self._clock.now_ms()
        if not self.authority.is_due(self.caller.expire_ms, now_ms):
            return False
        listener = self.authority.listener(now_ms)
        if self._tls is not None:
            await self._load(self._tls, listener)
        self.caller, self._listener = self.authority.caller(now_ms), listener
        _log.info("the control plane has renewed its own certificates")
        return True

    def _open(self, enrolled: int) -> Authority:
        try:
            text = read_private(self._path, MAX_FILE_BYTES)
            if text is None:
                self._check_lost(enrolled)
                made = Authority.create(self._clock.now_ms()).to_pem()
                if create_private(self._path, made):
                    _log.info("made the authority %s: keep a copy of it", self._path)
                text = read_private(self._path, MAX_FILE_BYTES) or b""
            return Authority.from_pem(text)
        except OSError as error:
            raise StoreError(f"cannot use {self._path}: because {error.strerror}") from error
        except ValueError as error:
            raise StoreError(f"cannot use {self._path}: because it is damaged: {error}") from error

    def _check_lost(self, enrolled: int) -> None:
        if enrolled:
            raise StoreError(
                f"cannot open {self._path}: because it is gone, and {enrolled} agents were"
                " enrolled with it: put a copy of it back, or run `init`, which makes another, and"
                " enrol every host again"
            )

    async def _load(self, context: ssl.SSLContext, identity: Identity) -> None:
        await self._run(lambda: _load(context, identity, self._path.parent))

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _load(context: ssl.SSLContext, identity: Identity, folder: Path) -> None:
    """Give a context its certificate; the ssl module takes it from a file alone."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".listener-") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(identity.key + identity.certificate)
        file.flush()
        context.load_cert_chain(file.name)
