"""Readiness of sessions: true once their processes have bound every declared port."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from agent.domain.containers.engine import Engine
from agent.domain.errors import AgentError
from agent.domain.sessions.session import Process, Session
from agent.network.bindings import compare_ports
from agent.sessions.life import Life
from agent.sessions.runtime import Runtime
from tiltyard.ends import PortBindings
from tiltyard.runtime.clock import rest_after
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

FIRST_SECONDS = 0.005
GROWTH = 1.1  # Growth of the wait per attempt: ports bound after t are noticed within t/10 of that
LONGEST_SECONDS = 2.0
"""Longest wait, after 20 s: 1,000 sessions that never bind then take 8 % of a core."""


@contextlib.asynccontextmanager
async def watch(
    runtime: Runtime, life: Life, process: Process
) -> AsyncIterator[asyncio.Task[None]]:
    """Look whether players can reach a session, beside the `with` body.

    The task ends, and wakes that of the session, once they can; see `record`.
    """
    name = f"ready-{life.session.internal_id}"
    looking = asyncio.create_task(_ready(runtime, life.session, process), name=name)
    looking.add_done_callback(lambda _: life.wake.set())
    try:
        yield looking
    finally:
        looking.cancel()
        await asyncio.wait({looking})


async def record(runtime: Runtime, life: Life, looking: asyncio.Task[None]) -> None:
    """Record that a session is ready, once it is and unless that is recorded."""
    if looking.done() and life.session.ready_time is None:
        looking.result()
        await life.save(life.session.with_changes(ready_time=runtime.clock.time()))


async def bindings(engine: Engine, session: Session) -> PortBindings:
    """Return which declared ports players cannot reach, and which others a session has bound.

    Raises EngineError if the kernel does not answer.
    """
    process = session.process
    if process is None:
        return compare_ports(session.ports, (), in_host_network=False)
    return await engine.bindings(process, session.spec.network_mode, session.ports)


async def _ready(runtime: Runtime, session: Session, process: Process) -> None:
    wait = FIRST_SECONDS
    reported = ""
    while session.ports and session.ready_time is None:
        began = runtime.clock.monotonic()
        try:
            if await runtime.engine.has_bound(process, session.spec.network_mode, session.ports):
                return
        except AgentError as error:
            if str(error) != reported:
                log.warning(
                    "cannot check readiness", session=session.internal_id, error=str(error)
                )
            reported = str(error)
        took = runtime.clock.monotonic() - began
        await runtime.clock.sleep(max(wait, rest_after(took, LONGEST_SECONDS)))
        wait = min(wait * GROWTH, LONGEST_SECONDS)
