"""A registry as the settings file declares it, and the files that it names for its log-in."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.domain.errors import ConfigError
from controlplane.domain.names import (
    ADDRESS_RULE,
    FAMILIAR_RULE,
    MAX_AUTH_HOSTS,
    MAX_PASSWORD,
    PASSWORD_RULE,
    USERNAME_RULE,
    is_familiar,
    is_password,
    is_registry_address,
    is_username,
)
from controlplane.pki.certificates import MAX_CHARACTERS, check_authorities
from tiltyard.runtime.settings.mistakes import Key, Mistake

_MAX_PASSWORD_BYTES = 4 * MAX_PASSWORD + 2
"""As UTF-8, with an end of the line."""


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """A registry that the file declares: its name, `host[:port]`, and prefixes that mean it.

    The rest is how to log in there, as `registries/endpoint.py` says. `password` and `ca` are what
    the files had that the keys `password_file` and `ca_file` name.
    """

    name: str
    address: str
    aliases: tuple[str, ...] = ()
    username: str = ""
    password: str = field(default="", repr=False)
    auth_hosts: tuple[str, ...] = ()
    private: bool = False
    ca: str = field(default="", repr=False)

    def mistakes(self, here: Key) -> Iterator[Mistake]:
        """Tell what is wrong with all but the name; `here` is where it stands."""
        for key, addresses in (
            ("address", (self.address,)),
            ("aliases", self.aliases),
            ("auth_hosts", self.auth_hosts),
        ):
            if not all(map(is_registry_address, addresses)):
                yield Mistake((*here, key), ADDRESS_RULE)
        if is_familiar(self.address):
            yield Mistake((*here, "address"), FAMILIAR_RULE)
        if len(self.auth_hosts) > MAX_AUTH_HOSTS:
            yield Mistake((*here, "auth_hosts"), f"must be at most {MAX_AUTH_HOSTS}")
        if bool(self.username) != bool(self.password):
            told = "goes together with password_file"
            yield Mistake((*here, "username"), told, f"set both or none for {self.name!r}")
        elif self.username and not is_username(self.username):
            yield Mistake((*here, "username"), USERNAME_RULE)


def read_files(here: Key, table: Mapping[str, object]) -> dict[str, object]:
    """Put what files hold in the place of their names. Blocks.

    Raises:
        ConfigError: One cannot be read or used, or its content stands in the settings themselves.
    """
    found = dict(table)
    for key, (name, read) in _FILES.items():
        if name in found:
            told = "must stand in a file of its own"
            raise ConfigError(Mistake((*here, name), told, f"name that file: set {key}"))
        if key in found:
            path = found.pop(key)
            if not isinstance(path, str) or not path:
                raise ConfigError(Mistake((*here, key), "must be a string"))
            found[name] = read((*here, key), Path(path))
    return found


def _read_password(key: Key, path: Path) -> str:
    try:
        # Not to wait for who writes, should this be a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError(Mistake(key, f"{path} is no file"))
            if mode & 0o077:
                told = f"others may read or write {path}"
                raise ConfigError(Mistake(key, told, f"run `chmod 600 {path}`"))
            content = file.read(_MAX_PASSWORD_BYTES + 1)
    except OSError as error:
        raise ConfigError(Mistake(key, f"cannot read {path}: {error.strerror}")) from None
    except ValueError as error:  # a name that can be none
        raise ConfigError(Mistake(key, f"cannot read {path}: {error}")) from None
    try:
        password = content.decode().removesuffix("\n")
    except UnicodeDecodeError:  # its text would quote the password
        raise ConfigError(Mistake(key, f"{path} is not UTF-8")) from None
    if not is_password(password):
        raise ConfigError(Mistake(key, f"what {path} holds {PASSWORD_RULE}"))
    return password


def _read_authorities(key: Key, path: Path) -> str:
    try:
        with path.open("rb") as file:
            pem = file.read(MAX_CHARACTERS + 1).decode("ascii", "replace")
        check_authorities(pem)
    except OSError as error:
        raise ConfigError(Mistake(key, f"cannot read {path}: {error.strerror}")) from None
    except ValueError as error:
        raise ConfigError(Mistake(key, f"what {path} holds {error}")) from None
    return pem


_FILES: dict[str, tuple[str, Callable[[Key, Path], str]]] = {
    "password_file": ("password", _read_password),
    "ca_file": ("ca", _read_authorities),
}
"""Keys of the settings, and the field that what their file holds is for."""
