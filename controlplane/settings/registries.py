"""Registries declared in the settings file, and their password and CA files."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool

from controlplane.domain.applications.registries import Registry
from controlplane.domain.names import (
    ADDRESS_RULE,
    FAMILIAR_RULE,
    MAX_AUTH_HOSTS,
    MAX_PASSWORD,
    PASSWORD_RULE,
    USERNAME_RULE,
    is_password,
    is_username,
)
from controlplane.pki.certificates import MAX_CHARACTERS, check_authorities
from tiltyard.images import LONGEST_ADDRESS, PATTERN, is_familiar, why_refused
from tiltyard.runtime.settings import Settings, checked

_MAX_PASSWORD_BYTES = 4 * MAX_PASSWORD + 2  # As UTF-8, with a line break


def _rule(fits: Callable[[str], bool], text: str) -> AfterValidator:
    def check(value: str) -> None:
        if not fits(value):
            raise ValueError(text)

    return checked(check)


@contextmanager
def _opened(path: object, flags: int = 0) -> Iterator[IO[bytes]]:
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise ValueError("must be a path in quotes")
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags), "rb") as file:
            yield file
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None


def _read_password(path: object) -> str:
    with _opened(path, os.O_NONBLOCK) as file:  # do not wait for a writer if this is a pipe
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} is not a file")
        if mode & 0o077:
            raise ValueError(f"{path} is accessible to other users: run `chmod 600 {path}`")
        content = file.read(_MAX_PASSWORD_BYTES + 1)
    try:
        password = content.decode().removesuffix("\n")
    except UnicodeDecodeError:  # its message would contain the password
        raise ValueError(f"{path} is not UTF-8") from None
    if not is_password(password):
        raise ValueError(f"the password in {path} {PASSWORD_RULE}")
    return password


def _read_authorities(path: object) -> str:
    with _opened(path) as file:
        pem = file.read(MAX_CHARACTERS + 1).decode("ascii", "replace")
    try:
        check_authorities(pem)
    except ValueError as error:
        raise ValueError(f"the content of {path} {error}") from None
    return pem


Address = Annotated[
    str,
    _rule(lambda address: is_familiar(address) or why_refused(address) is None, ADDRESS_RULE),
    Field(json_schema_extra={"maxLength": LONGEST_ADDRESS, "pattern": f"^{PATTERN}$"}),
]
OwnAddress = Annotated[Address, _rule(lambda name: not is_familiar(name), FAMILIAR_RULE)]


class RegistryConfig(Settings):
    """A registry declared in the settings file. For credentials see `registries/endpoint.py`.

    `aliases`: other prefixes of image names. `password` and `ca`: contents of the files named by
    `password_file` and `ca_file`.
    """

    name: str
    address: OwnAddress
    aliases: tuple[Address, ...] = ()
    username: Annotated[str, _rule(lambda n: not n or is_username(n), USERNAME_RULE)] = ""
    password: Annotated[str, BeforeValidator(_read_password)] = Field(
        default="", alias="password_file", repr=False, exclude=True
    )
    auth_hosts: Annotated[tuple[Address, ...], Field(max_length=MAX_AUTH_HOSTS)] = ()
    private: StrictBool = False
    ca: Annotated[str, BeforeValidator(_read_authorities)] = Field(
        default="", alias="ca_file", repr=False, exclude=True
    )

    @property
    def registry(self) -> Registry:
        """The declared registry, without its password."""
        return Registry(**self.model_dump(), ca=self.ca)
