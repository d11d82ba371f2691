"""Tickets: a host's proof that this control plane ordered a session on it.

A ticket is its time of issue and an HMAC over that time, the session's ids and the agent's name.
Hosts report it, so the control plane can re-adopt sessions that its database has lost. A
compromised host cannot forge one for other sessions, other hosts or a later start.
"""

import asyncio
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from controlplane.domain.contract import HostSession
from controlplane.domain.errors import StoreError
from controlplane.state_dir.private_files import read_or_create
from tiltyard.contract import Identity
from tiltyard.runtime.clock import Clock, from_ms, to_ms

KEY_BYTES = 32

MAX_AHEAD = 24 * 3600.0
"""Tolerated clock skew of a host. Shorter than the retention of ended sessions, so a ticket has
expired before its session id can be reused."""

_TIME_BYTES = 8

_PURPOSE = "tiltyard session 1"
"""Domain separation: other uses of the key cannot produce the same HMAC."""


class TicketKey:
    """Issues and verifies tickets with the deployment's key."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._key = b""

    async def open(self) -> None:
        """Read the key, or create it.

        Raises:
            StoreError: The file is unreadable or damaged, or cannot be written.
        """
        with ThreadPoolExecutor(1, "ticket key") as pool:
            self._key = await asyncio.get_running_loop().run_in_executor(pool, self._open)

    def ticket(self, agent: str, internal_id: str, identity: Identity) -> str:
        """Issue the ticket of a session on an agent's host."""
        return make_ticket(
            self._key, agent, internal_id, identity=identity, issued_ms=to_ms(self._clock.time())
        )

    def is_ours(self, agent: str, session: HostSession) -> bool:
        """Return whether this control plane ordered a session that an agent reports."""
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
                " it to create another"
            )
        return key


def make_ticket(
    key: bytes, agent: str, internal_id: str, *, identity: Identity, issued_ms: int
) -> str:
    """Return the ticket of a session on an agent's host, in hexadecimal."""
    account = identity.account
    session_id = identity.session_id
    issued = issued_ms.to_bytes(_TIME_BYTES, "big")
    fields = (_PURPOSE, internal_id, account, session_id, identity.application, agent)
    return (issued + hmac.digest(key, b"".join(map(_framed, fields)) + issued, sha256)).hex()


def is_valid(key: bytes, agent: str, session: HostSession) -> bool:
    """Return whether a session's ticket is genuine and not issued long before its start."""
    identity = session.identity
    issued_ms = int.from_bytes(bytes.fromhex(identity.ticket)[:_TIME_BYTES], "big")
    ticket = make_ticket(key, agent, session.internal_id, identity=identity, issued_ms=issued_ms)
    is_ours = hmac.compare_digest(identity.ticket, ticket)
    return is_ours and session.create_time <= from_ms(issued_ms) + MAX_AHEAD


def _framed(field: str) -> bytes:
    """Prefix a field with its length, so that joined fields are unambiguous."""
    data = field.encode()
    return len(data).to_bytes(4, "big") + data
