"""API tokens: `ty_<id>_<secret><checksum>`. Pure apart from the randomness of a new one.

The id is public and finds the row, which holds only the SHA-256 of the secret: 256 random bits
need no slow hash. Leak scanners find a token by prefix and checksum.
"""

import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

_FORM = re.compile(r"ty_([0-9a-f]{16})_([0-9a-f]{64})([0-9a-f]{8})\Z", re.ASCII)
_DUMMY_HASH = hashlib.sha256(secrets.token_bytes(32)).digest()


class Scope(StrEnum):
    """A permission of a token."""

    SESSION_START = "session:start"
    SESSION_READ = "session:read"
    SESSION_STOP = "session:stop"
    SESSION_PLAYERS = "session:players"
    ARTIFACT_READ = "artifact:read"
    REGIONS_READ = "regions:read"
    LOGS_READ = "logs:read"
    EVENT_READ = "event:read"
    TOKEN_WRITE = "token:write"  # noqa: S105  # the name of a scope, not a secret
    APPLICATION_WRITE = "application:write"
    APPLICATION_READ = "application:read"
    WEBHOOK_READ = "webhook:read"
    WEBHOOK_WRITE = "webhook:write"
    OPERATOR_READ = "operator:read"
    OPERATOR_WRITE = "operator:write"


OPERATOR_SCOPES = frozenset({Scope.OPERATOR_READ, Scope.OPERATOR_WRITE})
ACCOUNT_SCOPES = frozenset(Scope) - OPERATOR_SCOPES
_IMPLIED = {Scope.SESSION_START: frozenset({Scope.SESSION_PLAYERS})}


@dataclass(frozen=True, slots=True)
class NewToken:
    """A fresh token: `text` is shown once, the rest is stored."""

    text: str
    token_id: str
    secret_hash: bytes


class PresentedToken(NamedTuple):
    """A well-formed token of a request."""

    token_id: str
    secret_hash: bytes


def mint() -> NewToken:
    """Make a token with 256 random bits."""
    token_id = secrets.token_hex(8)
    secret = secrets.token_hex(32)
    body = f"ty_{token_id}_{secret}"
    return NewToken(body + _checksum(body), token_id, _hash(secret))


def parse(text: str) -> PresentedToken | None:
    """Parse a presented token; None if its form or checksum is wrong."""
    match = _FORM.match(text)
    if match is None or _checksum(text[:-8]) != match[3]:
        return None
    return PresentedToken(match[1], _hash(match[2]))


def matches(presented: PresentedToken, stored_hash: bytes | None) -> bool:
    """Compare in constant time, also with the hash of an unknown id (None)."""
    equal = hmac.compare_digest(presented.secret_hash, stored_hash or _DUMMY_HASH)
    return equal and stored_hash is not None


def grants(held: Collection[Scope], needed: Scope) -> bool:
    """Return whether a token that holds `held` may do what `needed` allows."""
    return needed in held or any(needed in _IMPLIED.get(scope, ()) for scope in held)


def earlier(one: float | None, other: float | None) -> float | None:
    """Return the earlier of two expiry times; None is never."""
    times = [time for time in (one, other) if time is not None]
    return min(times, default=None)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A requested token; `lifetime` in seconds, None for the maximum."""

    name: str
    scopes: frozenset[Scope]
    lifetime: int | None


@dataclass(frozen=True, slots=True)
class Token:
    """A token as operators see it; `account` and `parent` are None where there is none."""

    id: str
    account: str | None
    name: str
    scopes: tuple[str, ...]
    parent: str | None
    created: float
    expire: float | None
    last_used: float | None
    last_used_address: str | None
    revoked: float | None
