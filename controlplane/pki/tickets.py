"""Tickets: a host's proof that this control plane ordered a session on it.

A ticket is its time of issue, the session's reservation, and an HMAC over both, the session's
internal id and identity, and the agent's name. Hosts report it, so the control plane can re-adopt
sessions that its database has lost, as they were placed. A compromised host cannot forge one for
other sessions, other hosts, another reservation or a later start.
"""

import asyncio
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from controlplane.domain.errors import StoreError
from controlplane.domain.hosts.contract import HostSession, TicketContents
from controlplane.state_dir.private_files import read_or_create
from tiltyard.contract import Identity, Resources
from tiltyard.runtime.clock import Clock, from_ms, to_ms

KEY_BYTES = 32

MAX_AHEAD = 24 * 3600.0
"""Tolerated clock skew of a host. Shorter than the retention of ended sessions, so a ticket has
expired before its session id can be reused."""

_NUMBER_BYTES = 8
_HEAD_BYTES = 3 * _NUMBER_BYTES

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

    def ticket(
        self, agent: str, internal_id: str, identity: Identity, reservation: Resources
    ) -> str:
        """Issue the ticket of a session on an agent's host."""
        placed = TicketContents(
            to_ms(self._clock.time()), reservation.nano_cpus, reservation.memory_bytes
        )
        return make_ticket(self._key, agent, internal_id, identity=identity, placed=placed)

    def read(self, agent: str, session: HostSession) -> TicketContents | None:
        """Return what this control plane ordered, if an agent reports a session of its own."""
        return read_ticket(self._key, agent, session)

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
    key: bytes, agent: str, internal_id: str, *, identity: Identity, placed: TicketContents
) -> str:
    """Return the ticket of a session on an agent's host, in hexadecimal."""
    numbers = (placed.issued_ms, placed.nano_cpus, placed.memory_bytes)
    head = b"".join(number.to_bytes(_NUMBER_BYTES, "big") for number in numbers)
    labels = [text for label in sorted(identity.labels.items()) for text in label]
    fields = (
        _PURPOSE,
        internal_id,
        identity.account,
        identity.session_id,
        identity.application,
        identity.tag,
        identity.location,
        identity.external_id,
        agent,
        *labels,
    )
    return (head + hmac.digest(key, b"".join(map(_framed, fields)) + head, sha256)).hex()


def read_ticket(key: bytes, agent: str, session: HostSession) -> TicketContents | None:
    """Return what a session's ticket says.

    None unless it is genuine, and was not issued long before the session's start.
    """
    identity = session.identity
    head = bytes.fromhex(identity.ticket)[:_HEAD_BYTES]
    if len(head) < _HEAD_BYTES:
        return None
    starts = range(0, _HEAD_BYTES, _NUMBER_BYTES)
    placed = TicketContents(
        *(int.from_bytes(head[at : at + _NUMBER_BYTES], "big") for at in starts)
    )
    ticket = make_ticket(key, agent, session.internal_id, identity=identity, placed=placed)
    is_ours = hmac.compare_digest(identity.ticket, ticket)
    is_early = session.create_time <= from_ms(placed.issued_ms) + MAX_AHEAD
    return placed if is_ours and is_early else None


def _framed(field: str) -> bytes:
    """Prefix a field with its length, so that joined fields are unambiguous."""
    data = field.encode()
    return len(data).to_bytes(4, "big") + data
