"""What an ended session leaves on its host: its container and its log.

The log is sealed, then the container is removed, then the log. A session has one of these done at
a time, and none once it was forgotten; what was broken off is done again, from the record.
"""

import contextlib

from agent.domain.engine import name_of
from agent.domain.errors import AgentError, ContainerGoneError, DiskFullError, EngineError
from agent.kernel.disks import Disks
from agent.logs import reading as logs
from agent.sessions.life import Life
from agent.sessions.runtime import Runtime
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

SEAL_TRIES = 5
"""How often the engine may fail to read a log before its rest counts as lost: half a minute."""


async def seal(runtime: Runtime, disks: Disks, life: Life) -> None:
    """Take the log into the host's keeping, however long that takes.

    One that the engine fails to read SEAL_TRIES times is kept as far as it could be read. Those
    that found no room try again one at a time, so that not all take room and none has enough.
    """
    back_off, failures, internal_id = BackOff(runtime.clock), 0, life.session.internal_id
    alone: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
    sealed = None
    try:
        while sealed is None:
            try:
                async with alone:
                    size = await logs.seal(
                        runtime.engine,
                        runtime.records,
                        life.session,
                        runtime.failpoint,
                        partly=failures >= SEAL_TRIES,
                    )
                runtime.metrics.sealed_bytes.inc(size)
                sealed = True
            except ContainerGoneError:
                sealed = False
            except AgentError as error:
                failures += isinstance(error, EngineError)
                alone = (
                    disks.sealing if isinstance(error, DiskFullError) else contextlib.nullcontext()
                )
                disks.lacks_room(internal_id, error)
                log.warning("cannot seal the log", session=internal_id, error=str(error))
                await back_off.wait()
        await runtime.failpoint("log.sealed")
    finally:
        disks.found_room(internal_id)
    await life.save(life.session.with_changes(log_sealed=sealed, container_removed=not sealed))


async def record(life: Life) -> None:
    """Record once more what is known of one at rest whose last change found no room."""
    async with life.cleanup_lock:
        if not life.removed.is_set():
            await life.save(life.session)


async def remove_container(runtime: Runtime, life: Life) -> None:
    """Remove the container of a session whose log is sealed."""
    async with life.cleanup_lock:
        if life.session.container_removed or life.removed.is_set():
            return
        await runtime.engine.remove(name_of(life.session))
        await runtime.failpoint("container.removed")
        await life.save(life.session.with_changes(container_removed=True))


async def drop_log(runtime: Runtime, life: Life) -> None:
    """Remove the log of a session whose container is gone."""
    async with life.cleanup_lock:
        if life.removed.is_set():
            return
        await runtime.records.drop_log(life.session.internal_id)
        await life.save(life.session.with_changes(log_sealed=False))


async def take_back(runtime: Runtime, disks: Disks, life: Life, container: str) -> None:
    """Keep a container, by its id, that turned up after it was given up.

    An engine may come back from a reboot without some of what it had, and then find it.
    """
    session = life.session
    if session.log_sealed:
        await runtime.engine.remove(container)
        return
    log.warning("its container turned up after all", session=session.internal_id)
    await life.save(session.with_changes(container=container, container_removed=False))
    await seal(runtime, disks, life)
