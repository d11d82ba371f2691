"""Addresses and credentials of registries."""

import base64
import ipaddress
from dataclasses import dataclass, field

from yarl import URL


class UnusableError(Exception):
    """A registry or its response cannot be used.

    The message is for callers and contains no address; `detail` is for the log. Neither contains
    secrets.
    """

    def __init__(self, phrase: str, detail: str = "") -> None:
        super().__init__(phrase)
        self.detail = detail or phrase


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and credentials of a registry.

    `address` is `host[:port]`; `auth_hosts`: other hosts that may issue tokens, in the same form;
    `ca`: CA certificates to trust instead of the system's, as PEM text.
    """

    address: str
    username: str = ""
    password: str = field(default="", repr=False)
    auth_hosts: tuple[str, ...] = ()
    private: bool = False
    ca: str = ""

    @property
    def basic(self) -> str | None:
        """The `Authorization` header for basic authentication, None without a user name."""
        if not self.username:
            return None
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def base_url(address: str) -> URL:
    """Return the URL of `host[:port]`; plain HTTP only for loopback.

    Raises:
        UnusableError: Invalid address.
    """
    try:
        host = URL(f"//{address}").host or ""  # decoding `xn--` can raise ValueError too
        loopback = host == "localhost" or (
            is_address(host) and ipaddress.ip_address(host).is_loopback
        )
        return URL(f"{'http' if loopback else 'https'}://{address}")
    except ValueError as error:
        raise UnusableError("address is invalid", f"address is invalid: {error}") from error


def is_address(host: str) -> bool:
    """Return whether a host is an IP address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
