"""ICMP echo to one IPv4 address. The only importer of `icmplib`."""

import asyncio

from icmplib import AsyncSocket, ICMPLibError, ICMPRequest, ICMPSocketError, ICMPv4Socket
from icmplib.utils import unique_identifier


class CannotPingError(Exception):
    """This process cannot send ICMP."""


async def ping(address: str, timeout: float) -> float | None:
    """Send one echo and return its round trip in seconds; None without a reply in time.

    `timeout` in seconds. A reply from another address does not count.

    Raises:
        CannotPingError: This process may not send ICMP, or is out of file descriptors.
    """
    request = ICMPRequest(destination=address, id=unique_identifier(), sequence=1)
    with AsyncSocket(_socket()) as socket:
        try:
            # icmplib times out by the wall clock, which may be set meanwhile.
            async with asyncio.timeout(timeout):
                socket.sock.connect((address, 0))
                sent_at = asyncio.get_running_loop().time()
                socket.send(request)
                reply = await socket.receive(request, timeout)
                reply.raise_for_status()
        except (ICMPLibError, OSError):  # unreachable, refused by a firewall, or late
            return None
        return asyncio.get_running_loop().time() - sent_at


def _socket() -> ICMPv4Socket:
    """Open an unprivileged socket (`net.ipv4.ping_group_range`), else a raw one (CAP_NET_RAW)."""
    try:
        return ICMPv4Socket(privileged=False)
    except ICMPSocketError:
        pass
    try:
        return ICMPv4Socket(privileged=True)
    except ICMPSocketError as error:
        raise CannotPingError(str(error)) from error
