"""An agent that prints every acknowledged change: `python -m tests.agent.acknowledging FOLDER`.

It also prints which sessions' programs are executed, which must not be before their record. All
starts but the first take a prepared container.

Its engine is in memory, its state in FOLDER/state. The further argument `files` or `folders` skips
their fsync, so that the test must detect lost changes.
"""

import asyncio
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

from agent.domain.containers.engine import LABEL_SESSION, Container, Start
from agent.kernel.clock import SystemHostClock
from agent.state.drain import DrainOrder
from tests.support.agent.pools import a_claim, a_pool, ready
from tests.support.agent.samples import a_spec, an_id
from tests.support.agent.served import served
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tiltyard.contract import EndReason

STARTS = 4
PREPARED = 4  # The only account is kept half of them


def leave_out(what: str) -> None:
    """Skip fsync of `files` or `folders`."""
    sync = os.fsync

    def sync_the_other(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) != (what == "folders"):
            sync(descriptor)

    os.fsync = sync_the_other  # type: ignore[assignment]


def say(*words: object) -> None:
    os.write(1, b"%s\n" % " ".join(map(str, words)).encode())  # atomic


class SayingEngine(FakeEngine):
    """Prints which session's program is about to be executed."""

    async def hand_over(self, container: Container, channel: Path, start: Start) -> None:
        ordinary = container.labels.get(LABEL_SESSION)
        say("executed", ordinary or start.env["TILTYARD_SESSION_ID"])
        await super().hand_over(container, channel, start)


async def serve(folder: Path) -> None:
    """Make changes of every kind that must be durable."""
    clock = SystemHostClock()
    engine = SayingEngine(FakeClock(clock.time()))
    async with served(folder, engine, clock, prepared=PREPARED) as host:
        stock = host.daemon.prepared.stock
        for number in range(1, STARTS + 1):
            internal_id = an_id()
            identity = replace(a_spec().identity, session_id=internal_id)
            session = await host.sessions.start(internal_id, a_spec(identity=identity))
            say("prepared" if session.prepared else "started", session.internal_id)
            while not len(stock):
                await asyncio.sleep(0)
            await host.sessions.drains.order(DrainOrder(number, draining=False))
            say("drained", number)
        await host.daemon.warm_pools.set(a_pool(STARTS))
        while len(ready(host)) < STARTS:
            await asyncio.sleep(0)
        claims = [
            host.daemon.warm_pools.claim(each.internal_id, a_claim(each.internal_id))
            for each in ready(host)
        ]
        for claim in asyncio.as_completed(claims):
            say("claimed", (await claim).internal_id)
        await host.sessions.stop(session.internal_id, EndReason.STOPPED)
        say("stopped", session.internal_id)


if __name__ == "__main__":
    for _what in sys.argv[2:]:
        leave_out(_what)
    asyncio.run(serve(Path(sys.argv[1])))
