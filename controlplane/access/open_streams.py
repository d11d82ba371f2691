"""Open streams; none outlives the token that it was opened with."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from controlplane.domain.access.callers import Caller
from controlplane.domain.errors import UnauthorizedError
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.follower import Follower
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access.tokens import good_of, is_good
from tiltyard.runtime.clock import Clock


@dataclass(frozen=True, slots=True, eq=False)
class _Stream:
    """A stream, and the timeout that ends it."""

    token_id: str
    task: asyncio.Task[object]
    timeout: asyncio.Timeout


class OpenStreams:
    """The open streams, with their tasks and tokens; a change of a token checks its streams."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self.clock = clock
        self._open: set[_Stream] = set()
        self._follower = Follower("tokens of streams", self._end_bad, clock)
        store.changes.subscribe({Topic.TOKEN}, self._follower.note)

    @property
    def count(self) -> int:
        """Number of open streams."""
        return len(self._open)

    @asynccontextmanager
    async def opened(self, caller: Caller) -> AsyncIterator[None]:
        """Send a stream within; it ends when its token is revoked or expires.

        Raises:
            UnauthorizedError: The token has ended, before or while the stream was sent.
        """
        task = asyncio.current_task()
        assert task is not None, "streams are sent by tasks"
        timeout = asyncio.timeout(self._seconds_left(caller))
        stream = _Stream(caller.token_id, task, timeout)
        try:
            async with timeout:
                self._open.add(stream)
                await self._check(caller)
                yield
        except TimeoutError:
            if timeout.expired():
                raise UnauthorizedError from None
            raise
        finally:
            self._open.discard(stream)

    def end_all(self) -> None:
        """Cancel all streams, so that followers do not delay the shutdown."""
        for stream in self._open:
            stream.task.cancel()

    async def close(self) -> None:
        """Stop following the changes of tokens."""
        await self._follower.close()

    async def _end_bad(self, changed: Collection[Change]) -> None:
        """End the streams of the changed tokens that were revoked or have expired."""
        ids = {stream.token_id for stream in self._open}
        if Change(Topic.TOKEN) not in changed:
            ids &= {change.key[0] for change in changed}
        if not ids:
            return
        good = await self._store.look(good_of, ids, self.clock.time())
        now = asyncio.get_running_loop().time()
        for stream in self._open:
            if stream.token_id in ids - good and not stream.timeout.expired():
                stream.timeout.reschedule(now)

    async def _check(self, caller: Caller) -> None:
        """Check again: a revocation before the stream was registered did not end it."""
        if not await self._store.run(is_good, caller.token_id, self.clock.time()):
            raise UnauthorizedError

    def _seconds_left(self, caller: Caller) -> float | None:
        if caller.expire is None:
            return None
        return max(0.0, caller.expire - self.clock.time())
