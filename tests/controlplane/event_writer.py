"""A control plane whose events never end: `python -m tests.controlplane.event_writer`.

Its arguments are the state directory, a port, and the number of the commit after which it is
killed before it publishes what has changed, 0 for never. Then its last event is of the session
LAST.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from controlplane.app.control_plane import ControlPlane
from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.sessions import SessionStarting, SessionSubject
from controlplane.settings.model import Config
from controlplane.storage.engine import store as engine
from controlplane.storage.engine.changes import Change
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.sqlite import commit_batch

ACCOUNTS = ("alice", "bob")
LAST = "last"
WRITERS = 8
TRANSACTIONS = 40  # Of each writer, if it is not killed


def config_of(folder: Path, port: int) -> Config:
    return Config(
        state_dir=folder, api_listen=f"127.0.0.1:{port}", enrol_listen="", metrics_listen=""
    )


def kill_after(commits: int) -> None:
    """Let this process die between its COMMIT and the publication of what has changed."""
    left = commits

    def commit_and_die(*batch: Any, **more: Any) -> Sequence[Change]:
        nonlocal left
        changes = commit_batch(*batch, **more)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return changes

    engine.commit_batch = commit_and_die  # type: ignore[attr-defined]


def _append(db: Database, account: str, names: list[str]) -> None:
    for name in names:
        subject = SessionSubject(account, name, "game", "v1", "local", "{}")
        db.append(SessionStarting(*subject.named(ITSELF, time.time())))


async def _write(control_plane: ControlPlane, count: int | None) -> None:
    chance = Random()
    while count is None or count > 0:
        names = [f"s{chance.randrange(9)}" for _ in range(chance.randrange(1, 4))]
        await control_plane.store.run(_append, chance.choice(ACCOUNTS), names)
        await asyncio.sleep(chance.random() / 100)
        count = None if count is None else count - 1


async def _main(folder: Path, port: int, commits: int) -> None:
    control_plane = ControlPlane(config_of(folder, port))
    serving = asyncio.create_task(control_plane.serve(asyncio.Event()), name="serving")
    await control_plane.listening.wait()
    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(_write(control_plane, None if commits else TRANSACTIONS))
    for account in ACCOUNTS:
        await control_plane.store.run(_append, account, [LAST])
    await serving


if __name__ == "__main__":
    if int(sys.argv[3]):
        kill_after(int(sys.argv[3]))
    asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
