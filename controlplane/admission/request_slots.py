"""Request slots: a limit of each account's concurrent requests.

All accounts share the event loop and the database, so an account that floods the API waits for its
own requests to end. A request that waits for something outside this process (a host, a registry, a
reader) releases its slot.
"""

from collections.abc import Callable
from contextvars import ContextVar
from weakref import WeakValueDictionary

from controlplane.domain.errors import AccountBusyError
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.fair_queue import FairSlots

AT_ONCE = 32  # Concurrent requests of an account while no other account calls
AT_ONCE_SHARED = 2  # The same while other accounts call: a batch of the database stays short
SHARED_FOR = 10.0  # Seconds that the API counts as shared after a call of another account
MOST_WAITING = 1000  # Requests of an account that may wait for a slot
REFUSAL_DELAY = 1.0  # Seconds before a refusal is sent, to slow down immediate retries


class RequestSlot:
    """The slot of one request, until it is released."""

    def __init__(self, release: Callable[[], None] | None) -> None:
        self._release = release

    def release(self) -> None:
        """Give the slot to the next request of the account. Idempotent."""
        release = self._release
        self._release = None
        if release is not None:
            release()


_slot: ContextVar[RequestSlot | None] = ContextVar("slot", default=None)


def release_request_slot() -> None:
    """Release the slot of this task's request, if any, before an external wait. Idempotent."""
    slot = _slot.get()
    if slot is not None:
        slot.release()


def _bound(release: Callable[[], None] | None) -> RequestSlot:
    """Make a slot and bind it to this task."""
    slot = RequestSlot(release)
    _slot.set(slot)
    return slot


class RequestSlots:
    """Request slots of all accounts, first come, first served."""

    def __init__(
        self,
        clock: Clock,
        at_once: int = AT_ONCE,
        at_once_shared: int = AT_ONCE_SHARED,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._clock = clock
        self._at_once = at_once
        self._at_once_shared = min(at_once, at_once_shared)
        self._most_waiting = most_waiting
        self._last = ""
        self._shared_until = float("-inf")
        self._accounts: WeakValueDictionary[str, FairSlots] = WeakValueDictionary()
        self._recent: FairSlots | None = None
        """Keeps the slots of the latest caller's account alive: `_accounts` is weak."""

    def take_free(self, name: str) -> RequestSlot | None:
        """Take a slot of an account, as `take` does; None if none is free."""
        slots = self._of(name) if name else None
        if slots is None:
            return _bound(None)
        return _bound(slots.release) if slots.take() else None

    async def take(self, name: str) -> RequestSlot:
        """Wait for a slot of an account and bind it to this task and those it starts.

        "" stands for operators, who never wait.

        Raises:
            AccountBusyError: Too many requests of the account wait already.
        """
        free = self.take_free(name)
        if free is not None:
            return free
        slots = self._of(name)
        if len(slots.waiting) >= self._most_waiting:
            await self._clock.sleep(REFUSAL_DELAY)
            raise AccountBusyError(retry_after=1)
        await slots.wait()
        return _bound(slots.release)

    def _of(self, name: str) -> FairSlots:
        """Return the slots of the account that calls now."""
        if name != self._last:
            if self._last:  # alternating accounts share the API
                self._shared_until = self._clock.monotonic() + SHARED_FOR
            self._last = name
        slots = self._accounts.get(name)
        if slots is None:
            slots = self._accounts[name] = FairSlots(self._limit, is_shared=False)
        self._recent = slots
        return slots

    def _limit(self) -> int:
        shared = self._clock.monotonic() < self._shared_until
        return self._at_once_shared if shared else self._at_once
