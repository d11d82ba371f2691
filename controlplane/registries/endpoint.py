"""The address of a registry, its credentials, and errors when it cannot be used."""

import base64
import ipaddress
from dataclasses import dataclass, field

from yarl import URL


class UnusableError(Exception):
    """A registry, or what it answered, cannot be used.

    The text is for callers and names no address; `detail` is for the log. No secret is in either.
    """

    def __init__(self, phrase: str, detail: str = "") -> None:
        super().__init__(phrase)
        self.detail = detail or phrase


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a registry is and how to log in there.

    `address` is `host[:port]`; `auth_hosts`, of the same form, may be its realm; `ca` is the PEM
    text of certificate authorities to trust in place of the machine's.
    """

    address: str
    username: str = ""
    password: str = field(default="", repr=False)
    auth_hosts: tuple[str, ...] = ()
    private: bool = False
    ca: str = ""

    @property
    def basic(self) -> str | None:
        """The header for a log-in by name and password."""
        if not self.username:
            return None
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def base_url(address: str) -> URL:
    """Give the URL of `host[:port]`; plain HTTP only to loopback.

    Raises:
        UnusableError: It is no such address, or its host cannot be a DNS name.
    """
    try:
        host = URL(f"//{address}").host or ""  # decodes `xn--`, which may fail, too
        loopback = host == "localhost" or (
            is_address(host) and ipaddress.ip_address(host).is_loopback
        )
        return URL(f"{'http' if loopback else 'https'}://{address}")
    except ValueError as error:
        raise UnusableError("its address is none", f"its address is none: {error}") from error


def is_address(host: str) -> bool:
    """Return whether this is an IP address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
