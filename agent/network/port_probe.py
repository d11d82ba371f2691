"""Whether a process of this host has a port, found by binding it for a moment.

The engine looks only once it has made the container, at IPv4 alone where it publishes on that, and
not at all when a container is in the host's network.
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
    """Binds ports of the address that session ports are published on; all of them if wildcard.

    Does not block: nothing is sent, and a socket that never listened closes at once.
    """

    def __init__(self, bind_address: str) -> None:
        address = ipaddress.ip_address(bind_address)
        self._addresses = _WILDCARDS if address.is_unspecified else (str(address),)

    def is_free(self, protocol: Protocol, port: int) -> bool:
        """False when a process uses the port; if that is unknown, the engine decides."""
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
                # Closed connections that the kernel keeps for a minute do not block the port. For
                # UDP the option means another thing: two sockets could have the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address, port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False
