"""Webhooks: the endpoints of an account that get its events."""

import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto

from controlplane.domain.events.filters import EventFilter

MAX_WEBHOOKS = 20  # Of an account
MAX_URL = 2048  # Characters
MAX_KINDS = 100  # Of a filter
MAX_LABELS = 20  # Of a filter

_HOST = r"(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])"
_REST = r"[!$%&'()*+,;=:@/?~._A-Za-z0-9-]*"
URL_PATTERN = rf"https?://{_HOST}(?::[0-9]{{1,5}})?(?:[/?]{_REST})?"
"""A URL of printable ASCII characters, without user information and without a fragment."""

_URL = re.compile(URL_PATTERN + r"\Z", re.ASCII)
_PORT = re.compile(r"https?://(?:\[[^\]]*\]|[^:/?]*):([0-9]+)")
LARGEST_PORT = 65535
LONGEST_LABEL = 63  # Characters of each part of a name of the DNS


class DisabledCause(StrEnum):
    """Why a webhook is disabled."""

    REQUESTED = auto()
    GONE = auto()  # The endpoint has answered 410
    FAILING = auto()  # The endpoint has failed for days


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook as its account configures it; times in seconds.

    `kinds`, `image`, `location` and `labels` filter events; empty ones match any event. With
    `ordered`, an event waits until the one before it is delivered. `generation` changes with
    whatever changes its deliveries: URL, filter, position, secret.
    """

    id: str
    account: str
    url: str
    created: float
    description: str = ""
    kinds: tuple[str, ...] = ()
    image: str = ""
    location: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ordered: bool = True
    disabled: DisabledCause | None = None
    generation: int = 1

    @property
    def filter(self) -> EventFilter:
        """The events that it delivers."""
        return EventFilter(
            self.account,
            kinds=self.kinds,
            image=self.image or None,
            location=self.location or None,
            labels=self.labels,
        )

    @property
    def host(self) -> str:
        """The host and the port of the URL."""
        return host_of(self.url)

    @property
    def is_enabled(self) -> bool:
        """Whether events are delivered."""
        return self.disabled is None


def new_id() -> str:
    """Make the id of a webhook."""
    return secrets.token_hex(8)


def check_url(url: str, *, plain_http: bool) -> None:
    """Check the URL of a webhook; plain HTTP only with `plain_http`.

    Raises:
        ValueError: It is not acceptable.
    """
    if len(url) > MAX_URL:
        raise ValueError(f"must have at most {MAX_URL} characters")
    if _URL.match(url) is None:
        raise ValueError("must be an https URL in ASCII, without user information and fragment")
    port = _PORT.match(url)
    if port is not None and not 0 < int(port[1]) <= LARGEST_PORT:
        raise ValueError(f"must have a port from 1 to {LARGEST_PORT}")
    name = _name_of(url)
    is_v6 = "[" in host_of(url)
    is_address = is_v6 or _is_number(name)
    if is_address and (not address_in(url) or is_v6 != (":" in name)):
        raise ValueError("must have a host name, or an address in its usual form")
    labels = name.removesuffix(".").split(".")
    if not is_address and not all(0 < len(label) <= LONGEST_LABEL for label in labels):
        raise ValueError("must have a host name that the DNS allows")
    if url.startswith("http:") and not plain_http:
        raise ValueError("must be an https URL")


def address_in(url: str) -> str:
    """Return the IP address that a checked URL has as its host, empty if it has a name."""
    try:
        return str(ipaddress.ip_address(_name_of(url)))
    except ValueError:
        return ""


def host_of(url: str) -> str:
    """Return the host and port of a checked URL. Paths can contain secrets, and are not shown."""
    return url.partition("://")[2].partition("/")[0].partition("?")[0]


def _name_of(url: str) -> str:
    return re.sub(r":[0-9]+\Z", "", host_of(url)).strip("[]")


def _is_number(name: str) -> bool:
    """Return whether some programs take a name for an IPv4 address, such as 2130706433."""
    return re.search(r"(?:\A|\.)(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?\Z", name) is not None
