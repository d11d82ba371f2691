"""Watches the readers of responses: a slow one is counted, one without progress disconnected."""

import asyncio

from controlplane.admission.byte_room import ByteRoom, HeldBytes

SOURCE = 256 * 1024
"""Bytes that the source of a response has read ahead: a chunk of a stream, a portion of a list."""


class OutputWatch:
    """Watches one connection while its reader does not take all that was sent."""

    def __init__(self, responses: ByteRoom, stall: float) -> None:
        """`stall` is in seconds."""
        self._responses = responses
        self._stall = stall
        self._held: HeldBytes | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, wire: asyncio.Transport, account: str | None) -> None:
        """Watch a slow reader; disconnect it if its account has too many of them."""
        unsent = wire.get_write_buffer_size()
        self._held = self._responses.hold(account)
        if self._held.grow(unsent + SOURCE):
            self._look(wire, unsent + 1)
        else:
            asyncio.get_running_loop().call_soon(wire.abort)

    def end(self) -> None:
        """Stop watching. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._held is not None:
            self._held.release()
            self._held = None

    def _look(self, wire: asyncio.Transport, before: int) -> None:
        unsent = wire.get_write_buffer_size()
        if unsent >= before:
            wire.abort()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._stall, self._look, wire, unsent)
