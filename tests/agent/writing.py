"""Writes a state directory and a container label: `python -m tests.agent.writing formats/<n>`.

Files of a released format are never rewritten.
"""

import asyncio
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.domain.containers.engine import LABEL_RECORD, container_name
from agent.domain.errors import SessionNotFoundError
from agent.domain.sessions.session import Claim
from agent.init.channel import FOLDER
from agent.rpc.identity import FILE, Identity
from agent.rpc.signing import make_request
from agent.state.drain import DrainOrder
from controlplane.pki.authority import Authority
from tests.support.agent.hosts import Agent, an_agent, until_sealed
from tests.support.agent.keeping import PREPARED, prepared_for
from tests.support.agent.samples import IMAGE, a_spec
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tiltyard.contract import EndReason, SessionSpec, State

BEGUN = 1_800_000_000.0
WRITTEN = BEGUN + 11  # Time when that agent ended
RUNNING = "00000001-0000-4000-8000-000000000000"
RESTARTING = "00000002-0000-4000-8000-000000000000"
ENDED = "00000003-0000-4000-8000-000000000000"
MARKED = "00000004-0000-4000-8000-000000000000"
BURIED = "00000005-0000-4000-8000-000000000000"
CLAIMED = "00000006-0000-4000-8000-000000000000"
TAKEN = "00000007-0000-4000-8000-000000000000"
LABEL = "label.json"
DAY = 86_400.0


async def write(folder: Path) -> None:
    """Run a scenario in a folder, and leave `state` and the label there."""
    clock = FakeClock(BEGUN)
    engine = FakeEngine(clock)
    engine.image_store.add(IMAGE)
    async with an_agent(folder, engine, clock, prepared=PREPARED) as agent:
        await _play(agent)
        labels = (await engine.inspect(container_name(RUNNING))).labels
    await asyncio.to_thread((folder / LABEL).write_text, labels[LABEL_RECORD], "utf-8")
    await asyncio.to_thread(identify, folder / "state" / FILE, BEGUN)


async def _play(agent: Agent) -> None:
    clock = agent.clock
    engine = agent.engine
    sessions = agent.sessions
    await sessions.start(
        RUNNING, _spec(1, ttl=3600.0, args=("--map", "ü"), env={"MODE": "$TILTYARD_HOST"})
    )
    restarting = await sessions.start(RESTARTING, _spec(2, restart=True))
    await sessions.start(ENDED, _spec(3))
    await sessions.start(MARKED, _spec(4))
    claimed = await sessions.start(CLAIMED, _spec(5))
    claim = Claim('{"map":"ü"}')
    await agent.records.save_claim(claimed.with_changes(spec=_spec(6), claim=claim))
    await prepared_for(agent, _spec(7, disk_bytes=2**30))
    await sessions.start(TAKEN, _spec(7, disk_bytes=2**30))
    engine.write_log(container_name(ENDED), b"one\ntwo\n")
    await clock.advance(5)
    await agent.fail(restarting, 139, then=1)
    await agent.reached(RESTARTING, State.RUNNING)
    await clock.advance(5)
    await agent.fail(restarting, 139)
    await sessions.stop(ENDED, EndReason.STOPPED)
    await until_sealed(agent, ENDED)
    try:
        await sessions.stop(BURIED, EndReason.STOPPED)
    except SessionNotFoundError:
        await sessions.drains.order(DrainOrder(7, draining=True, remaining=DAY))
    marked = sessions.life(MARKED).session.with_changes(stop_reason=EndReason.TTL)
    await agent.records.mark_stop(marked)


def _spec(number: int, **changes: Any) -> SessionSpec:
    spec = a_spec(**changes)
    return replace(spec, identity=replace(spec.identity, session_id=f"match/{number} ü"))


def identify(path: Path, now: float) -> None:
    """Make the host one that is enrolled, with an authority of its own."""
    authority = Authority.create(now)
    (key, request) = make_request()
    signed = authority.sign_agent(request, "host-1", now).certificate
    Identity(key, signed, authority.certificate).save(path)


def _keep(made: Path, folder: Path) -> None:
    for name in ("spool", "lock"):
        left = made / "state" / name
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()
    no_fifos = shutil.ignore_patterns(FOLDER)
    shutil.copytree(made / "state", folder / "state", ignore=no_fifos)
    shutil.copy(made / LABEL, folder / LABEL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(write(Path(scratch)))
        _keep(Path(scratch), Path(sys.argv[1]))
