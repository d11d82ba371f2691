"""Tickets: a host's proof that this control plane ordered a session on it. Pure.

The time of issue, and an HMAC over that, the names of the session and the name of the agent.
The host keeps it with the session and reports it, so that a session which the database does not
know can be taken back. A host that was taken over has the tickets of what was placed there and can
make no other: it can neither invent sessions nor report another host's as its own, nor report an
old one as begun just now, which would end a newer session of the same id.

The agent stands there by its name. It is what both a declared and an enrolled agent have, and it
stays when a host enrols again.
"""

import hmac
from hashlib import sha256

from controlplane.domain.contract import HostSession
from tiltyard.contract import Identity

KEY_BYTES = 32

MAX_AHEAD_MS = 24 * 3600 * 1000
"""How far a host's clock may be ahead. Ended sessions are kept for longer than that, so a ticket
has expired once its id is free again."""

_TIME_BYTES = 8

_KIND = "tiltyard session 1"
"""What the key is used for here: no other use of it can give the same bytes."""


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
