"""Registry passwords and secrets of webhooks, encrypted with a key beside the database.

The ciphertext includes user and address, so a changed row cannot send a password elsewhere. Of a
webhook, these are its id and its account.
"""

from pathlib import Path
from threading import Lock

from cryptography.fernet import Fernet, InvalidToken

from controlplane.domain.errors import StoreError
from controlplane.registries.endpoint import UnusableError
from controlplane.state_dir.private_files import read_private, write_private
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

MAX_KEY_BYTES = 1024  # More than a key needs

_SEPARATOR = "\n"
"""Cannot occur in an address, user name or password: control characters are rejected."""


class Vault:
    """The key and its file, which is created when the first password is sealed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: bytes | None = None
        self._sealing = Lock()  # Two threads that made a key would overwrite each other's

    def load(self) -> None:
        """Read the key. Without a valid one, only unsealing fails. Blocks."""
        try:
            self._key = self._read()
        except StoreError as error:
            log.warning("cannot use the key of passwords and secrets", error=str(error))

    def seal(self, address: str, username: str, password: str) -> bytes:
        """Seal the password of a user at an address. Blocks.

        Raises:
            StoreError: The key can be neither read nor created.
        """
        with self._sealing:
            key = self._key_to_seal()
        return Fernet(key).encrypt(_plaintext(address, username, password).encode())

    def unseal(self, address: str, username: str, sealed: bytes) -> str:
        """Return the password sealed for this user at this address.

        Raises:
            UnusableError: Missing or different key, or sealed for another user or address.
        """
        try:
            text = "" if self._key is None else Fernet(self._key).decrypt(sealed).decode()
        except InvalidToken:
            text = ""
        password = text.rpartition(_SEPARATOR)[2]
        if text != _plaintext(address, username, password):
            why = f"{self._path} is not the key of its password: set its password again"
            raise UnusableError("its password is unusable", f"its password is unusable: {why}")
        return password

    def _key_to_seal(self) -> bytes:
        key = self._read()
        if key is None:  # restores a deleted file from memory, so sealed passwords stay valid
            key = self._key or Fernet.generate_key()
            try:
                write_private(self._path, key)
            except OSError as error:
                raise self._failure(error) from error
        self._key = key
        return key

    def _read(self) -> bytes | None:
        try:
            key = read_private(self._path, MAX_KEY_BYTES)
            if key is not None:
                Fernet(key)
        except OSError as error:
            raise self._failure(error) from error
        except ValueError as error:
            text = (
                f"cannot use the key {self._path}: it holds no key: remove it or put a copy back"
            )
            raise StoreError(text) from error
        return key

    def _failure(self, error: OSError) -> StoreError:
        return StoreError(f"cannot use the key {self._path}: {error.strerror}")


def _plaintext(address: str, username: str, password: str) -> str:
    return _SEPARATOR.join((address.lower(), username, password))
