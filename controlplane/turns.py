"""Turns: how many requests of one account are worked on at a time.

The event loop and the database are shared by all accounts, so an account that floods the API is
held back here: its further requests wait for one of its own to end. A request that waits for
something else than this process, such as a host, a registry or a reader, leaves its turn to the
next; such waits have limits of their own.
"""

import asyncio
from contextvars import ContextVar
from weakref import WeakValueDictionary

from controlplane.errors import AccountBusyError

AT_ONCE = 32
"""Requests of an account that are worked on: together they take some 10 ms of the event loop."""

MOST_WAITING = 1000
"""Requests of an account that wait for their turn; one more is refused."""

REFUSAL_DELAY = 1.0
"""Seconds until a refusal is sent, so that a client that tries again at once costs little."""


class _Account:
    """What one account has under way; kept while it has anything."""

    def __init__(self, at_once: int) -> None:
        self.free = asyncio.Semaphore(at_once)
        self.waiting = 0


class Turn:
    """The turn of one request, until it ends or is left."""

    def __init__(self, account: _Account | None) -> None:
        self._account = account

    def end(self) -> None:
        """Give the turn to the next request of the account. Idempotent."""
        account, self._account = self._account, None
        if account is not None:
            account.free.release()


_turn: ContextVar[Turn | None] = ContextVar("turn", default=None)


def leave_turn() -> None:
    """Leave the turn of the request that this task works for, before a wait for something else.

    Idempotent, and nothing happens in a task that works for no request.
    """
    turn = _turn.get()
    if turn is not None:
        turn.end()


class Turns:
    """Gives turns to the requests of every account, first come, first served."""

    def __init__(
        self,
        at_once: int = AT_ONCE,
        most_waiting: int = MOST_WAITING,
        refusal_delay: float = REFUSAL_DELAY,
    ) -> None:
        self._at_once = at_once
        self._most_waiting = most_waiting
        self._refusal_delay = refusal_delay
        self._accounts: WeakValueDictionary[str, _Account] = WeakValueDictionary()

    async def take(self, name: str) -> Turn:
        """Wait for a turn of an account; this task and those it starts work in it.

        "" stands for operators, who need not wait.

        Raises:
            AccountBusyError: Too many requests of the account wait already.
        """
        turn = Turn(await self._free_of(name) if name else None)
        _turn.set(turn)
        return turn

    async def _free_of(self, name: str) -> _Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = _Account(self._at_once)
        if account.waiting >= self._most_waiting:
            await asyncio.sleep(self._refusal_delay)
            raise AccountBusyError(retry_after=1)
        account.waiting += 1
        try:
            await account.free.acquire()
        finally:
            account.waiting -= 1
        return account
