"""Cleanup of ended sessions: seal the log, remove the container, remove the log.

At most one step of a session runs at a time. An interrupted step is repeated from the record.
"""

import contextlib
from collections.abc import Awaitable, Callable

from agent.domain.containers.engine import name_of
from agent.domain.errors import AgentError, ContainerGoneError, DiskFullError, EngineError
from agent.kernel.disks import Disks
from agent.logs import reading as logs
from agent.sessions.life import Life
from agent.sessions.runtime import Runtime
from agent.state.tombstones import Tombstones
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

SEAL_TRIES = 5  # Failed reads of a log, half a minute in all, before the rest of it counts as lost


async def seal(runtime: Runtime, disks: Disks, life: Life) -> None:
    """Copy the log from the engine into the session directory, and retry until that succeeds.

    After SEAL_TRIES engine errors a partial copy is kept. After DiskFullError logs are copied one
    at a time, so that partial copies do not fill the disk together.
    """
    back_off = BackOff(runtime.clock)
    failures = 0
    internal_id = life.session.internal_id
    alone: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
    sealed = None
    damaged = False
    try:
        while sealed is None:
            try:
                async with alone:
                    size, damaged = await logs.seal(
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
    await life.save(
        life.session.with_changes(
            log_sealed=sealed, log_damaged=damaged, container_removed=not sealed
        )
    )


async def record(life: Life) -> None:
    """Retry saving an ended session's record after a full disk."""
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


async def discard(
    runtime: Runtime, tombstones: Tombstones, life: Life, forget: Callable[[], Awaitable[None]]
) -> None:
    """Remove an ended session, and all of it by `forget`; after an error the caller retries."""
    internal_id = life.session.internal_id
    await life.wait_for(lambda session: session.log_sealed or session.container_removed)
    try:
        if not life.session.container_removed:
            await remove_container(runtime, life)
        await tombstones.bury(internal_id)
        await runtime.failpoint("discard.buried")
        await forget()
    except AgentError as error:
        log.warning("cannot be discarded yet", session=internal_id, error=str(error))
        raise


async def take_back(runtime: Runtime, disks: Disks, life: Life, container: str) -> None:
    """Seal the log of a container that the engine listed late, or remove it if that is done."""
    session = life.session
    if session.log_sealed:
        await runtime.engine.remove(container)
        return
    log.warning("container of an ended session found", session=session.internal_id)
    await life.save(session.with_changes(container=container, container_removed=False))
    await seal(runtime, disks, life)
