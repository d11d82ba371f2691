"""A control plane that appends events on command: `python -m tests.bench.event_server`.

Its arguments are a folder and a number of accounts. It prints its address and tokens as JSON, and
then does what each line of its input says, and prints the result as a line of JSON:

- `history N`: appends N events of the first account, in batches; the seconds that took.
- `steady N RATE`: appends N events at a rate, of the accounts in turn, each in a transaction of
  its own; when each was committed (CLOCK_MONOTONIC), by its object, and the seconds of processor
  time of this process.
- `burst N`: appends the event `burst-N`, and sends itself requests meanwhile; when the event
  was committed, and the longest that a request has waited.
"""

import asyncio
import json
import sys
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import aiohttp

from controlplane.app.control_plane import ControlPlane
from controlplane.cli.server import collect_rarely
from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.sessions import SessionStarting, SessionSubject
from controlplane.settings.model import Config
from controlplane.storage.engine.database import Database

BATCH = 500  # Events of a transaction of the history


def _append(db: Database, account: str, names: list[str], now: float) -> None:
    for name in names:
        subject = SessionSubject(account, name, "game", "v1", "local", '{"mode": "duel"}')
        db.append(SessionStarting(*subject.named(ITSELF, now)))


class _Server:
    def __init__(self, folder: Path, accounts: int) -> None:
        self._names = [f"account-{number}" for number in range(accounts)]
        self._config = Config(
            state_dir=folder,
            api_listen="127.0.0.1:0",
            enrol_listen="",
            metrics_listen="",
            max_event_streams=6000,
            max_event_streams_per_token=6000,
            max_connections_per_address=4096,
        )
        self._control_plane: ControlPlane

    async def run(self) -> None:
        """Serve until the end of the input."""
        made = await ControlPlane(self._config).initialise(tuple(self._names))
        self._control_plane = control_plane = ControlPlane(self._config)
        stopping = asyncio.Event()
        serving = asyncio.create_task(control_plane.serve(stopping), name="serving")
        await control_plane.listening.wait()
        _print(
            {
                "url": control_plane.base_url,
                "tokens": list(made.accounts.values()),
                "operator": made.operator_token,
            }
        )
        while line := await asyncio.to_thread(sys.stdin.readline):
            command, *numbers = line.split()
            _print(await getattr(self, command)(*map(int, numbers)))
        stopping.set()
        await serving

    async def history(self, count: int) -> float:
        """Append events in batches; return the seconds."""
        began = monotonic()
        for first in range(0, count, BATCH):
            names = [f"old-{number}" for number in range(first, min(first + BATCH, count))]
            await self._append(self._names[0], names)
        return monotonic() - began

    async def steady(self, count: int, rate: int) -> dict[str, Any]:
        """Append events one by one at a rate; return when each was committed, and the cost."""
        committed: dict[str, float] = {}
        began = monotonic()
        used = process_time()

        async def append(number: int) -> None:
            await asyncio.sleep(max(0.0, began + number / rate - monotonic()))
            account = self._names[number % len(self._names)]
            await self._append(account, [f"new-{number}"])
            committed[f"new-{number}"] = monotonic()

        await asyncio.gather(*(append(number) for number in range(count)))
        await asyncio.sleep(0.5)  # for the streams
        return {"committed": committed, "cpu": process_time() - used}

    async def burst(self, number: int) -> dict[str, float]:
        """Append an event for all; return when, and the longest wait of other requests."""
        longest = 0.0
        done = asyncio.Event()

        async def ask(client: aiohttp.ClientSession) -> None:
            nonlocal longest
            while not done.is_set():
                began = monotonic()
                async with client.get(f"{self._control_plane.base_url}/healthz") as answer:
                    await answer.read()
                longest = max(longest, monotonic() - began)
                await asyncio.sleep(0.002)

        async with aiohttp.ClientSession() as client:
            asking = asyncio.create_task(ask(client), name="asking")
            await asyncio.sleep(0.5)
            longest = 0.0
            await self._append(self._names[0], [f"burst-{number}"])
            committed = monotonic()
            await asyncio.sleep(2.0)
            done.set()
            await asking
        return {"committed": committed, "longest": longest}

    async def _append(self, account: str, names: list[str]) -> None:
        control_plane = self._control_plane
        now = control_plane.clock.time()
        await control_plane.store.run(_append, account, names, now)


def _print(result: object) -> None:
    sys.stdout.write(f"{json.dumps(result)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    collect_rarely()  # As the program does
    asyncio.run(_Server(Path(sys.argv[1]), int(sys.argv[2])).run())
