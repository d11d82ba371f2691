"""Tickets: a host's proof that this control plane ordered a session on it.

The time of issue, and an HMAC over that, the names of the session and the name of the agent, which
stays when a host enrols again. The host reports it, so that a session which the database does not
know can be taken back. A host that was taken over can make no other ticket: it can neither invent
sessions, nor report another host's as its own, nor an old one as begun just now.
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
from tiltyard.runtime.clock import Clock, to_ms

KEY_BYTES = 32

MAX_AHEAD_MS = 24 * 3600 * 1000
"""How far a host's clock may be ahead. Ended sessions are kept for longer than that, so a ticket
has expired once its id is free again."""

_TIME_BYTES = 8

_KIND = "tiltyard session 1"
"""What the key is used for here: no other use of it can give the same bytes."""


class TicketKey:
    """Owns the key."""

    def __init__(self, path: Path, clock: Clock) -> None:
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
        return make_ticket(self._key, agent, internal_id, identity, to_ms(self._clock.time()))

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


def make_ticket(
    key: bytes, agent: str, internal_id: str, identity: Identity, issued_ms: int
) -> str:
    """Make the ticket of a session on the host of an agent, in hexadecimal digits."""
    account, session_id = identity.account, identity.session_id
    issued = issued_ms.to_bytes(_TIME_BYTES, "big")
    fields = (_KIND, internal_id, account, session_id, identity.application, agent)
    return (issued + hmac.digest(key, b"".join(map(_framed, fields)) + issued, sha256)).hex()


def is_valid(key: bytes, agent: str, session: HostSession) -> bool:
    """Return whether a reported session has its ticket, and did not begin long after its issue.

    A claimed standby began before it.
    """
    identity = session.identity
    issued_ms = int.from_bytes(bytes.fromhex(identity.ticket)[:_TIME_BYTES], "big")
    ticket = make_ticket(key, agent, session.internal_id, identity, issued_ms)
    is_ours = hmac.compare_digest(identity.ticket, ticket)
    return is_ours and session.create_ms <= issued_ms + MAX_AHEAD_MS


def _framed(field: str) -> bytes:
    """Give a field behind its length, so that no two lists of fields make the same bytes."""
    data = field.encode()
    return len(data).to_bytes(4, "big") + data
