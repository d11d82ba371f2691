"""Admission control for artifact fetches, by number and disk space."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from agent.domain.errors import ReadersBusyError
from tiltyard.runtime.fair_share import exceeds_share


@dataclass(eq=False, slots=True)
class Share:
    """The room taken by one artifact. `size`: bytes."""

    container: str
    account: str
    size: int
    packing: bool = True


@dataclass(eq=False, slots=True)
class SpoolRoom:
    """Allocates room to fetches within limits, of each of which an account has a share.

    `total_bytes`: of disk; an archive being packed counts `largest_bytes`. `most_packed`: archives
    being packed, one per container, since its removal waits for them. `most_fetched`: all fetches.
    `most_each`: fetches per container. `patience`: seconds that a fetch waits for room. For one
    event loop.
    """

    total_bytes: int
    largest_bytes: int
    most_packed: int = 4
    most_fetched: int = 64
    most_each: int = 4
    patience: float = 10.0
    _shares: list[Share] = field(default_factory=list, init=False)
    _freed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @contextlib.asynccontextmanager
    async def taken(self, container: str, account: str) -> AsyncIterator[Share]:
        """Reserve room for one fetch; ReadersBusyError if none is free in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.patience):
                while self._obstacle(container, account):
                    await self._freed.wait()
        if obstacle := self._obstacle(container, account):
            raise ReadersBusyError(obstacle)
        share = Share(container, account, self.largest_bytes)
        self._shares.append(share)
        try:
            yield share
        finally:
            self._shares.remove(share)
            self._wake()

    def packed(self, share: Share, size: int) -> None:
        """Replace the reservation of an artifact by its packed size."""
        share.packing = False
        share.size = size
        self._wake()

    def _wake(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()

    def _obstacle(self, container: str, account: str) -> str:
        """The reason why there is no room for another fetch; empty if there is room."""
        shares = self._shares
        packing = [share.container for share in shares if share.packing]
        of_this = sum(share.container == container for share in shares)
        size = sum(share.size for share in shares)
        if container in packing:
            return "another one of this session is being packed"
        if of_this >= self.most_each:
            return f"{of_this} of this session are being fetched"
        if len(packing) >= self.most_packed:
            return f"{len(packing)} of other sessions are being packed"
        if len(shares) >= self.most_fetched:
            return f"{len(shares)} are being fetched from this host"
        if size + self.largest_bytes > self.total_bytes:
            return "artifacts in transit fill artifact_spool_bytes"
        mine = [share for share in shares if share.account == account]
        packing_mine = sum(share.packing for share in mine)
        size_mine = sum(share.size for share in mine)
        has_its_share = (
            exceeds_share(packing_mine, 1, len(packing), self.most_packed)
            or exceeds_share(len(mine), 1, len(shares), self.most_fetched)
            or exceeds_share(size_mine, self.largest_bytes, size, self.total_bytes)
        )
        cause = f"the account fetches {len(mine)}, the rest is reserved for other accounts"
        return cause if has_its_share else ""
