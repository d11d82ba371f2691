"""Checks whether a port is in use, by binding it briefly.

The engine checks only after it has created the container, only IPv4 if it publishes there, and
never for containers in the host's network.
"""

import errno
import ipaddress
import socket

from tiltyard.contract import Protocol
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - nothing is received there
_KINDS = {Protocol.TCP: socket.SOCK_STREAM, Protocol.UDP: socket.SOCK_DGRAM}


class PortProbe:
    """Probes ports of the address that session ports are published on. Does not block."""

    def __init__(self, bind_address: str) -> None:
        address = ipaddress.ip_address(bind_address)
        self._addresses = _WILDCARDS if address.is_unspecified else (str(address),)

    def is_free(self, protocol: Protocol, port: int) -> bool:
        """Return False if a process uses the port; True if unknown: the engine checks later."""
        for address in self._addresses:
            if _in_use(protocol, address, port):
                log.warning(
                    "a port is in use", port=port, protocol=protocol.value, address=address
                )
                return False
        return True


def _in_use(protocol: Protocol, address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, _KINDS[protocol]) as probe:
            if protocol is Protocol.TCP:
                # Ignore connections in TIME_WAIT. For UDP, the option would share the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address, port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False
