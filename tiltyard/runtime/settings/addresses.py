"""Addresses and networks in settings, the same for both programs."""

import ipaddress
from typing import Annotated

from pydantic import AfterValidator

LARGEST_PORT = 65535
MOST_DIGITS = 5


def host_and_port(text: str) -> tuple[str, int]:
    """Split an address to listen on or to dial; brackets of IPv6 go, the host may be empty.

    Raises:
        ValueError: It is not one.
    """
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):
        raise ValueError("must have the form host:port")
    if len(port) > MOST_DIGITS or int(port) > LARGEST_PORT:
        raise ValueError(f"the port must be at most {LARGEST_PORT}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _network(value: str) -> str:
    return str(ipaddress.ip_network(value))


NetworkText = Annotated[str, AfterValidator(_network)]
"""A network in its normal form, such as 10.0.0.0/8."""
