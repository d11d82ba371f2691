"""Admission control for artifact fetches, by number and disk space."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agent.domain.errors import ReadersBusyError
from agent.domain.fair_share import exceeds_share


@dataclass(frozen=True, slots=True)
class RoomLimits:
    """Limits on concurrent fetches, of each of which an account has a share.

    `total_bytes`: of disk; an archive being packed counts `largest_bytes`. `packed`: archives
    being packed, one per container, since its removal waits for them. `fetched`: all fetches.
    `fetched_each`: fetches per container. `patience`: seconds that a fetch waits for room.
    """

    total_bytes: int
    largest_bytes: int
    packed: int = 4
    fetched: int = 64
    fetched_each: int = 4
    patience: float = 10.0


@dataclass(eq=False, slots=True)
class Share:
    """The room taken by one artifact. `size`: bytes."""

    container: str
    account: str
    size: int
    packing: bool = True


class SpoolRoom:
    """Allocates room to fetches; for one event loop."""

    def __init__(self, limits: RoomLimits) -> None:
        self._limits = limits
        self._shares: list[Share] = []
        self._freed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def taken(self, container: str, account: str) -> AsyncIterator[Share]:
        """Reserve room for one fetch; ReadersBusyError if none is free in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.patience):
                while self._obstacle(container, account):
                    await self._freed.wait()
        if obstacle := self._obstacle(container, account):
            raise ReadersBusyError(obstacle)
        share = Share(container, account, self._limits.largest_bytes)
        self._shares.append(share)
        try:
            yield share
        finally:
            self._shares.remove(share)
            self._wake()

    def packed(self, share: Share, size: int) -> None:
        """Replace the reservation of an artifact by its packed size."""
        share.packing, share.size = False, size
        self._wake()

    def _wake(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()

    def _obstacle(self, container: str, account: str) -> str:
        """Why there is no room for another fetch; empty if there is."""
        limits, shares = self._limits, self._shares
        packing = [share.container for share in shares if share.packing]
        of_this = sum(share.container == container for share in shares)
        size = sum(share.size for share in shares)
        if container in packing:
            return "another one of this session is being packed"
        if of_this >= limits.fetched_each:
            return f"{of_this} of this session are being fetched"
        if len(packing) >= limits.packed:
            return f"{len(packing)} of other sessions are being packed"
        if len(shares) >= limits.fetched:
            return f"{len(shares)} are being fetched from this host"
        if size + limits.largest_bytes > limits.total_bytes:
            return "artifacts in transit fill artifact_spool_bytes"
        mine = [share for share in shares if share.account == account]
        packing_mine = sum(share.packing for share in mine)
        size_mine = sum(share.size for share in mine)
        has_its_share = (
            exceeds_share(packing_mine, 1, len(packing), limits.packed)
            or exceeds_share(len(mine), 1, len(shares), limits.fetched)
            or exceeds_share(size_mine, limits.largest_bytes, size, limits.total_bytes)
        )
        cause = f"the account fetches {len(mine)}, the rest is reserved for other accounts"
        return cause if has_its_share else ""
