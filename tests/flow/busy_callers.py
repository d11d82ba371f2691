"""Callers who start, stop, join and read without end, and write down what they were answered."""

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
        self._mine: dict[str, list[str]] = {}
        """The players of each session that may live."""

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

    def _next(self) -> tuple[Op, str, str]:
        """What to ask now: the operation, the session, and a player if it is about one."""
        if len(self._mine) < SESSIONS_EACH and self._chance.random() < 0.3:
            session_id = f"{self._name}-{next(self._numbers)}"
            self._mine[session_id] = []
            return "start", session_id, ""
        if not self._mine:
            return "read", f"{self._name}-0", ""
        session_id = self._chance.choice(list(self._mine))
        players = self._mine[session_id]
        op: Op = self._chance.choices(("stop", "join", "leave", "read"), (2, 5, 3, 3))[0]
        if op == "stop":
            return op, session_id, ""
        if op == "join":
            player = f"{session_id}-p{next(self._numbers)}"
            players.append(player)
            return op, session_id, player
        if op == "leave" and players:
            return op, session_id, players.pop(self._chance.randrange(len(players)))
        return "read", session_id, ""

    async def _ask(self, op: Op, session_id: str, player: str) -> Type:
        asked = Entry(0.0, self._process, "invoke", op, self._account, session_id, player)
        self._history.add(asked)
        status, body = await self._call(op, session_id, player)
        told = replace(asked, type=outcome(status), status=status)
        if op == "read" and told.type == "ok":
            players = tuple(body["players"]["joined"])
            told = replace(told, seen=body["status"], players=players)
        self._history.add(told)
        if told.type == "info":
            self._process = self._history.new_process()
        elif _is_over(told):
            self._mine.pop(session_id, None)
        return told.type

    async def _call(self, op: Op, session_id: str, player: str) -> tuple[int | None, Any]:
        about = {"session": session_id, "players": [player]}
        method, path, body = {
            "start": ("POST", "/session", _start(session_id)),
            "stop": ("DELETE", f"/session/{session_id}", None),
            "join": ("PUT", "/session/player/join", about),
            "leave": ("DELETE", "/session/player/leave", about),
            "read": ("GET", f"/session/{session_id}", None),
        }[op]
        more: dict[str, Any] = {"json": body, "timeout": REQUEST_TIMEOUT}
        try:
            return await self._outlived.call(method, path, account=self._account, **more)
        except aiohttp.ClientConnectorError:
            return NOBODY, None
        except (aiohttp.ClientError, TimeoutError):
            return None, None


def _is_over(told: Entry) -> bool:
    """Return whether there is no such session, or none any more."""
    if told.op == "start":
        return told.type == "fail" and told.status != 409
    return told.status == 404 or (told.op == "stop" and told.status != NOBODY)


def _start(session_id: str) -> dict[str, object]:
    return {"location": "local", "image": "game", "id": session_id}


async def known_to(outlived: Outlived, account: str) -> dict[Key, str]:
    """The status of every session that an account is told of, ended ones included."""
    status, told = await outlived.call("GET", "/session", account=account, params={"all": "true"})
    assert status == 200, told
    return {(account, each["id"]): each["status"] for each in told["sessions"]}


async def joined_to(outlived: Outlived, key: Key) -> list[str]:
    """The players of a session."""
    status, told = await outlived.call("GET", f"/session/{key[1]}", account=key[0])
    assert status == 200, told
    joined: list[str] = told["players"]["joined"]
    return joined
