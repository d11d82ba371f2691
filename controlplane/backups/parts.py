"""The files that a backup consists of, named as in the state directory."""

from pathlib import Path

from cryptography.fernet import Fernet

from controlplane.domain.errors import StoreError
from controlplane.pki.authorities import Authorities
from controlplane.pki.tickets import KEY_BYTES

DATABASE = "controlplane.db"
AUTHORITY, TICKET_KEY, REGISTRY_KEY = "authority.pem", "ticket.key", "registry.key"

KEYS = (AUTHORITY, TICKET_KEY, REGISTRY_KEY)
REQUIRED = (AUTHORITY, TICKET_KEY, DATABASE)
"""`registry.key` exists only once a password of a registry has been set."""

PARTS = (*KEYS, DATABASE)
"""In their order. An archive that is cut off lacks the database, and so is never mistaken for one
without a registry key."""

MAX_KEY_BYTES = 16 * 1024


def check_keys(folder: Path) -> None:
    """Check that the files of keys in a folder hold keys, as far as they exist. Blocks.

    Raises:
        StoreError: One is damaged.
        OSError: One cannot be read.
    """
    for name, parse in (
        (AUTHORITY, Authorities.from_pem),
        (TICKET_KEY, _check_ticket_key),
        (REGISTRY_KEY, Fernet),
    ):
        if (folder / name).exists():
            try:
                parse((folder / name).read_bytes())
            except ValueError as error:
                raise StoreError(f"{name} is damaged: {error}") from error


def _check_ticket_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ValueError(f"it has {len(key)} bytes instead of {KEY_BYTES}")
