"""Readers of `GET /event`, and events for them to read."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from controlplane.domain.access.audit import Actor, ActorKind
from controlplane.domain.events.sessions import SessionStarting, SessionSubject
from controlplane.storage.engine.database import Database
from tests.support.controlplane.system import System

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
PATIENCE = 20.0  # Seconds within which the next part of a stream must come
CALLER = Actor("0123456789abcdef", "192.0.2.1", ActorKind.ACCOUNT)


async def reserve(
    system: System,
    *names: str,
    account: str = "alice",
    image: str = "game",
    labels: dict[str, str] | None = None,
    now: float | None = None,
) -> None:
    """Append an event of the start of each of these sessions, in one transaction."""
    time = system.clock.time() if now is None else now

    def transaction(db: Database) -> None:
        for name in names:
            subject = SessionSubject(account, name, image, "v1", "local", json.dumps(labels or {}))
            db.append(SessionStarting(*subject.named(CALLER, time)))

    await system.control_plane.store.run(transaction)


@dataclass
class Frame:
    """A block of server-sent events; what it does not have is None."""

    id: str | None = None
    event: str | None = None
    data: Any = None
    retry: int | None = None
    comment: str | None = None


class Reader:
    """One open stream, in either form."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def line(self) -> str:
        """Read a line; "" at the end."""
        async with asyncio.timeout(PATIENCE):
            return (await self.response.content.readline()).decode()

    async def json(self) -> Any:
        """Read an object of a stream of lines."""
        return json.loads(await self.line())

    async def frame(self) -> Frame | None:
        """Read a block of server-sent events; None at the end."""
        found = Frame()
        while (line := await self.line()) not in {"", "\n"}:
            name, _, value = line.removesuffix("\n").partition(": ")
            match name:
                case "":
                    found.comment = value
                case "data":
                    found.data = json.loads(value)
                case "retry":
                    found.retry = int(value)
                case "id" | "event":
                    setattr(found, name, value)
                case _:
                    raise AssertionError(line)
        return found if line else None

    async def frames(self) -> list[Frame]:
        """Read all blocks to the end."""
        found = []
        while (frame := await self.frame()) is not None:
            found.append(frame)
        return found

    async def lines(self) -> list[Any]:
        """Read all objects to the end."""
        found = []
        while line := await self.line():
            found.append(json.loads(line))
        return found

    async def objects(self, count: int) -> list[str]:
        """Read events of the log; return their objects. Skips what a stream says of itself."""
        is_sse = self.response.headers["Content-Type"] == SSE
        found: list[str] = []
        while len(found) < count:
            if is_sse:
                frame = await self.frame()
                assert frame is not None, found
                event = frame.data
            else:
                event = await self.json()
            if event is not None and not event["type"].startswith("stream."):
                found.append(event["object"])
        return found


@asynccontextmanager
async def reading(
    system: System,
    query: str = "",
    *,
    form: str = SSE,
    token: str = "",
    last_id: str = "",
    path: str = "/event",
) -> AsyncIterator[Reader]:
    """Open a stream."""
    own = system.operator_token if path.startswith("/operator/") else system.tokens["alice"]
    headers = {"Authorization": f"Bearer {token or own}", "Accept": form}
    if last_id:
        headers["Last-Event-ID"] = last_id
    url = f"{system.control_plane.base_url}{path}?{query}"
    async with system.http.get(url, headers=headers) as response:
        yield Reader(response)


@asynccontextmanager
async def opened(system: System, query: str = "", **more: Any) -> AsyncIterator[Reader]:
    """Open a stream, and read that it is open."""
    async with reading(system, query, **more) as reader:
        assert reader.response.status == 200
        is_sse = more.get("form", SSE) == SSE
        if is_sse:
            frame = await reader.frame()
            assert frame is not None
            assert frame.event == "stream.open"
            assert frame.data == {"id": frame.id, "type": "stream.open"}
        else:
            assert (await reader.json())["type"] == "stream.open"
        yield reader


def is_free(system: System) -> bool:
    """Return whether no stream is open."""
    return system.control_plane.services.event_slots.taken == 0


async def ended(reader: Reader, form: str) -> Any:
    """Read to the end; return what the stream says last, with its `retry`."""
    if form == NDJSON:
        return (await reader.lines())[-1]
    *_, retry, last = await reader.frames()
    assert last.id == last.data["id"]
    assert last.event == last.data["type"]
    return last.data | {"retry": retry.retry}
