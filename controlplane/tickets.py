"""Tickets: a host's proof that this control plane ordered a session on it. Pure.

An HMAC over what tells the session apart and over the agent's name. The host keeps it with the
session and reports it, so that a session which the database does not know can be taken back. Who
has taken over a host has the tickets of what was placed there and can make no other: it can
neither invent sessions nor pass off another host's as its own.

The agent stands there by its name. It is what both a declared and an enrolled agent have, and it
stays when a host enrols again.
"""

import hmac
from hashlib import sha256

from controlplane.fleet.contract import Identity

KEY_BYTES = 32

_KIND = "tiltyard session 1"
"""What the key is used for here: no other use of it can give the same bytes."""


def make_ticket(key: bytes, agent: str, internal_id: str, identity: Identity) -> bytes:
    """Make the ticket of a session on the host of an agent."""
    account, session_id = identity.account, identity.session_id
    fields = (_KIND, internal_id, account, session_id, identity.application, agent)
    return hmac.digest(key, b"".join(map(_framed, fields)), sha256)


def is_valid(key: bytes, agent: str, internal_id: str, identity: Identity) -> bool:
    """Tell whether a reported session has the ticket that it was started with."""
    return hmac.compare_digest(identity.ticket, make_ticket(key, agent, internal_id, identity))


def _framed(field: str) -> bytes:
    """Give a field behind its length, so that no two lists of fields make the same bytes."""
    data = field.encode()
    return len(data).to_bytes(4, "big") + data
