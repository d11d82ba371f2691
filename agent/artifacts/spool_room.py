"""Room for artifacts on their way: how many, and how many bytes of disk they take."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agent.domain.errors import ReadersBusyError
from agent.domain.fair_share import exceeds_share


@dataclass(frozen=True, slots=True)
class RoomLimits:
    """How much there is room for.

    `total_bytes` of disk; one that is being packed counts with `largest_bytes`. At one time
    `packed` archives are packed, one of each container, since the engine's lock lets more of them
    wait, and the removal of the container behind them. `fetched` are on their way in all,
    `fetched_each` of one container. One account has a share of each. A fetch that finds no room
    waits `patience` seconds.
    """

    total_bytes: int
    largest_bytes: int
    packed: int = 4
    fetched: int = 64
    fetched_each: int = 4
    patience: float = 10.0


@dataclass(eq=False, slots=True)
class Share:
    """The room that one artifact takes, in bytes."""

    container: str
    account: str
    size: int
    packing: bool = True


class SpoolRoom:
    """Hands out shares of the room; for one event loop."""

    def __init__(self, limits: RoomLimits) -> None:
        self._limits = limits
        self._shares: list[Share] = []
        self._freed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def taken(self, container: str, account: str) -> AsyncIterator[Share]:
        """Take room for packing an artifact of a container and keep it until the block is left.

        Raises:
            ReadersBusyError: There is no room.
        """
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
        """Take note of what an artifact takes once it is packed."""
        share.packing, share.size = False, size
        self._wake()

    def _wake(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()

    def _obstacle(self, container: str, account: str) -> str:
        """Why there is no space for another one; empty if there is."""
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
            return "those being fetched fill the disk space that artifacts may take"
        mine = [share for share in shares if share.account == account]
        packing_mine = sum(share.packing for share in mine)
        size_mine = sum(share.size for share in mine)
        has_its_share = (
            exceeds_share(packing_mine, 1, len(packing), limits.packed)
            or exceeds_share(len(mine), 1, len(shares), limits.fetched)
            or exceeds_share(size_mine, limits.largest_bytes, size, limits.total_bytes)
        )
        cause = f"the account fetches {len(mine)}, the rest of the room is kept for others"
        return cause if has_its_share else ""
