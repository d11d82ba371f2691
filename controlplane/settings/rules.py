"""Rules for values of the settings that do not depend on which settings there are. Pure."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping

from controlplane.domain.errors import ConfigError
from tiltyard.runtime.settings.mistakes import Key, Mistake, shown

MOST_DIGITS = 5
"""Of a port."""


def optional_address(key: str, text: str) -> tuple[str, int] | None:
    """Split `host:port`, of any host when there is none; None when nothing is set.

    Raises:
        ConfigError: It has another form.
    """
    if not text:
        return None
    host, port = split_address(key, text)
    try:
        _ = host in {"", "localhost"} or ipaddress.ip_address(host)
    except ValueError:
        raise not_an_address(key, host) from None
    return host, port


def split_address(key: str, address: str) -> tuple[str, int]:
    """Split the address that a key has into host and port.

    Raises:
        ConfigError: It has another form.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):
        raise ConfigError(Mistake((key,), "must have the form host:port", "add the port"))
    if len(port) > MOST_DIGITS or int(port) > 65535:
        raise ConfigError(Mistake((key,), "the port must be at most 65535", "take another"))
    return host.removeprefix("[").removesuffix("]"), int(port)


def not_an_address(key: str, host: str) -> ConfigError:
    """Make what is raised for the host of a key."""
    told, mend = f"{host!r} is not an address", "write an address of this machine, not its name"
    return ConfigError(Mistake((key,), told, mend))


def raised(read: Callable[[], object]) -> Iterator[Mistake]:
    """Give the mistakes that reading something tells."""
    try:
        read()
    except ConfigError as error:
        yield from error.mistakes


def repeated(claimed: Mapping[Key, str]) -> Iterator[Mistake]:
    """Tell of texts that are there twice, by their keys."""
    first: dict[str, Key] = {}
    for key, text in claimed.items():
        if text in first:
            mend = f"take one out: the other is {shown(first[text])}"
            yield Mistake(key, f"{text!r} is there twice", mend)
        first.setdefault(text, key)
