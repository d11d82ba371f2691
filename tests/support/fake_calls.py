"""Calls of a fake engine, which tests count, hold, fail and lose by name."""

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from agent.domain import errors


class FakeCalls:
    """The calls of a fake engine in the order of their arrival, and what tests script for them."""

    def __init__(self) -> None:
        self.calls: deque[tuple[str, str]] = deque(maxlen=1000)
        """The name and the subject of each call."""
        self._failures: dict[str, deque[errors.AgentError]] = defaultdict(deque)
        self._lost: dict[str, int] = defaultdict(int)
        self._gates: dict[str, asyncio.Event] = {}
        self._arrivals: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._unavailable = False

    @property
    def unavailable(self) -> bool:
        """True while the engine does not answer; setting it breaks open streams."""
        return self._unavailable

    @unavailable.setter
    def unavailable(self, value: bool) -> None:
        self._unavailable = value
        if value:
            self._break_streams()

    def count(self, call: str) -> int:
        """The number of calls of this name."""
        return sum(name == call for name, _ in self.calls)

    def hold(self, call: str) -> None:
        """Block calls of this name before they do anything, until `release`."""
        self._gates[call] = asyncio.Event()
        self._arrivals[call] = asyncio.Event()

    async def held(self, call: str) -> None:
        """Wait until a call is blocked there."""
        await self._arrivals[call].wait()

    async def held_in(self, call: str, work: Awaitable[Any]) -> asyncio.Task[Any]:
        """Begin work, and wait until a call of this name is blocked."""
        self.hold(call)
        begun = asyncio.ensure_future(work)
        await self.held(call)
        return begun

    def release(self, call: str) -> None:
        self._gates.pop(call).set()

    def heal(self) -> None:
        """Remove all scripted failures."""
        for call in list(self._gates):
            self.release(call)
        self._failures.clear()
        self._lost.clear()
        self.unavailable = False

    def fail_next(self, call: str, error: errors.AgentError, *, times: int = 1) -> None:
        """Make the next calls of this name fail without effect; repeated calls queue up."""
        self._failures[call] += [error] * times

    def answer_lost_next(self, call: str) -> None:
        """Make the next call of this name take effect and then raise EngineTimeoutError."""
        self._lost[call] += 1

    @contextlib.asynccontextmanager
    async def _call(self, call: str, subject: str = "") -> AsyncIterator[None]:
        self.calls.append((call, subject))
        await asyncio.sleep(0)
        while (gate := self._gates.get(call)) is not None:
            self._arrivals[call].set()
            await gate.wait()
        self._check_available()
        if self._failures[call]:
            raise self._failures[call].popleft()
        yield
        if self._lost[call]:
            self._lost[call] -= 1
            raise errors.EngineTimeoutError(call)

    def _check_available(self) -> None:
        if self._unavailable:
            raise errors.EngineUnavailableError("the fake engine is set not to answer")

    def _break_streams(self) -> None:
        """Wake the readers of open streams, which then find the engine unavailable."""
        raise NotImplementedError
