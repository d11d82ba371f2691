"""The key that tickets are made with, in a file beside the database."""

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from controlplane.domain.contract import HostSession
from controlplane.domain.errors import StoreError
from controlplane.pki.tickets import KEY_BYTES, is_valid, make_ticket
from controlplane.state_dir.private_files import read_or_create
from tiltyard.contract import Identity
from tiltyard.runtime.clock import Clock, unix_ms


class TicketKey:
    """Owns the key."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Name the file; nothing is read before `open`."""
        self._path = path
        self._clock = clock
        self._key = b""

    async def open(self) -> None:
        """Read the key, or make it: without it no start can be ordered.

        Raises:
            StoreError: It can be neither read nor made, or is damaged.
        """
        with ThreadPoolExecutor(1, "ticket key") as pool:
            self._key = await asyncio.get_running_loop().run_in_executor(pool, self._open)

    def ticket(self, agent: str, internal_id: str, identity: Identity) -> str:
        """Make the ticket of a session on the host of an agent."""
        return make_ticket(self._key, agent, internal_id, identity, unix_ms(self._clock))

    def is_ours(self, agent: str, session: HostSession) -> bool:
        """Return whether an agent was asked to start the session that it reports."""
        return is_valid(self._key, agent, session)

    def _open(self) -> bytes:
        try:
            key = read_or_create(
                self._path,
                KEY_BYTES + 1,
                lambda: secrets.token_bytes(KEY_BYTES),
                what="ticket key",
            )
        except OSError as error:
            raise StoreError(f"cannot use {self._path}: {error.strerror}") from error
        if len(key) != KEY_BYTES:
            raise StoreError(
                f"cannot use {self._path}: it is damaged: put a copy of it back, or remove"
                " it, and another is made"
            )
        return key
