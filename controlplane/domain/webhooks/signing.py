"""Signatures of Standard Webhooks 1.0.0: HMAC-SHA256 with a secret that both sides have."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping

SECRET_PREFIX = "whsec_"  # noqa: S105  # of a secret, not one
SECRET_BYTES = 32  # The specification allows 24 to 64

OVERLAP = 24 * 3600.0
"""Seconds for which messages are also signed with the former secret after a rotation."""


def new_secret() -> str:
    """Make a secret with 256 random bits."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Sign a message that is sent at a time in seconds since the epoch."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def signed_headers(
    secrets_in_use: Iterable[str], message_id: str, timestamp: int, body: bytes
) -> Mapping[str, str]:
    """Return the headers of a message with a signature for each secret, the newest first."""
    signatures = [signature(each, message_id, timestamp, body) for each in secrets_in_use]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }
