"""Callers that start, stop and read without end, and write down what they were answered."""

import asyncio
import itertools
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TextIO

import aiohttp

from tests.faults.history import NOBODY, Entry, Key, Op, Type, outcome
from tests.flow.outlived import Outlived

REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30)
"""Above all that the control plane may take."""
PAUSE = 0.02
"""Seconds at most between what one caller asks."""
ASK_AGAIN = 0.7
SESSIONS_EACH = 2
"""Concurrent sessions of a caller."""


class History:
    """The lines of a history, in the order in which they happened, in memory and in a file."""

    def __init__(self, path: Path) -> None:
        self.entries: list[Entry] = []
        self._file: TextIO = path.open("w")
        self._begin = time.monotonic()
        self._processes = itertools.count()

    def new_process(self) -> int:
        return next(self._processes)

    def add(self, entry: Entry) -> None:
        """Write down what happens now."""
        entry = replace(entry, time=round(time.monotonic() - self._begin, 6))
        self.entries.append(entry)
        self._file.write(f"{entry.to_json()}\n")

    def close(self) -> None:
        self._file.close()


class Caller:
    """One caller of an account, who has a session of its own or a few."""

    def __init__(
        self, number: int, account: str, outlived: Outlived, history: History, chance: Random
    ) -> None:
        self._name = f"{account}-{number}"
        self._account = account
        self._outlived = outlived
        self._history = history
        self._chance = chance
        self._process = history.new_process()
        self._numbers = itertools.count()
        self._mine: list[str] = []
        """The sessions that may live."""

    async def run(self, serving: asyncio.Event, enough: asyncio.Event) -> None:
        """Ask until it is enough; while nobody serves, wait.

        What is unknown is asked again, but not always: some callers give up.
        """
        while not enough.is_set():
            await serving.wait()
            await asyncio.sleep(self._chance.uniform(0, PAUSE))
            what = self._next()
            while await self._ask(*what) == "info" and self._chance.random() < ASK_AGAIN:
                await serving.wait()

    def _next(self) -> tuple[Op, str]:
        """What to ask now: the operation, and the session."""
        if len(self._mine) < SESSIONS_EACH and self._chance.random() < 0.3:
            self._mine.append(f"{self._name}-{next(self._numbers)}")
            return "start", self._mine[-1]
        if not self._mine:
            return "read", f"{self._name}-0"
        op: Op = self._chance.choices(("stop", "read"), (1, 2))[0]
        return op, self._chance.choice(self._mine)

    async def _ask(self, op: Op, session_id: str) -> Type:
        asked = Entry(0.0, self._process, "invoke", op, self._account, session_id)
        self._history.add(asked)
        status, body = await self._call(op, session_id)
        answered = replace(asked, type=outcome(status), status=status)
        if op == "read" and answered.type == "ok":
            answered = replace(answered, seen=body["status"])
        self._history.add(answered)
        if answered.type == "info":
            self._process = self._history.new_process()
        elif _is_over(answered) and session_id in self._mine:
            self._mine.remove(session_id)
        return answered.type

    async def _call(self, op: Op, session_id: str) -> tuple[int | None, Any]:
        path = f"/session/{session_id}"
        start = {"location": "local", "image": "game", "id": session_id}
        method, path, body = {
            "start": ("POST", "/session", start),
            "stop": ("DELETE", path, None),
            "read": ("GET", path, None),
        }[op]
        more: dict[str, Any] = {"json": body, "timeout": REQUEST_TIMEOUT}
        try:
            return await self._outlived.call(method, path, account=self._account, **more)
        except aiohttp.ClientConnectorError:
            return NOBODY, None
        except (aiohttp.ClientError, TimeoutError):
            return None, None


def _is_over(answered: Entry) -> bool:
    """Return whether there is no such session, or none any more."""
    if answered.op == "start":
        return answered.type == "fail" and answered.status != 409
    return answered.status == 404 or (answered.op == "stop" and answered.status != NOBODY)


async def known_to(outlived: Outlived, account: str) -> dict[Key, str]:
    """The status of every session that an account sees, ended ones included."""
    status, body = await outlived.call("GET", "/session", account=account, params={"all": "true"})
    assert status == 200, body
    return {(account, each["id"]): each["status"] for each in body["sessions"]}
