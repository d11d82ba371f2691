"""Containers, from their creation until their init waits: of a session, or prepared for any.

What follows then is the same for all, see `starting`.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

from agent.domain.containers.engine import (
    Container,
    ContainerSpec,
    ContainerStatus,
    InitState,
    container_name,
    name_of,
)
from agent.domain.errors import (
    AgentError,
    ContainerExistsError,
    ContainerGoneError,
    EngineTimeoutError,
    FirewallFailedError,
    ImageCannotRunError,
    ImageMissingError,
    PortTakenError,
)
from agent.domain.kept.prepared import Prepared
from agent.domain.sessions.session import Session
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from agent.state.encoding import encode_label
from tiltyard.contract import MEBI, SessionSpec
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import contained

log = get_logger(__name__)

PORT_TRIES = 3  # Attempts, each with other ports, while the engine finds one in use
FIREWALL_TRIES = 4
FIREWALL_FIRST_SECONDS = 0.2
"""Mean first wait; doubled each time, with 50 % jitter: 2.1 s in all at most, which is below the
control plane's timeout of a start."""
BEGINNING_TRIES = 100
BEGINNING_STEP_SECONDS = 0.01  # Between two looks at an init that does not wait yet
LEAST_SHM_BYTES = 64 * MEBI  # As of Docker Engine
ANSWER_SECONDS = 0.05
"""From the end of a start until what the engine does after it, which would delay its answer."""


async def prepare(runtime: Runtime, reservations: Reservations, template: Session) -> Prepared:
    """Create and start a prepared container; returns it once its init waits.

    `template` holds ports, which change if the engine finds one in use. After an error of the
    engine or the disk the caller must remove container, folders and ports.
    """

    async def begin(template: Session) -> Container:
        await create(runtime, template)
        return await start_created(runtime, template)

    await runtime.records.prepare(template)
    template, container = await on_free_ports(runtime, reservations, template, begin)
    return await as_prepared(runtime, template, container)


async def as_prepared(runtime: Runtime, template: Session, container: Container) -> Prepared:
    """Find out in advance what a start in a waiting container needs to know of it."""
    # A start may name a program, and a container outlives its image.
    with contextlib.suppress(ImageCannotRunError, ImageMissingError):
        await runtime.engine.program(template.spec.image, ())
    if container.process is not None:
        await runtime.usage.watch(template.made_for, container.process, waits=True)
    await runtime.sources.open(template, container)
    return Prepared(template, container)


async def on_free_ports(
    runtime: Runtime,
    reservations: Reservations,
    session: Session,
    begin: Callable[[Session], Awaitable[Container]],
    *,
    moved: Callable[[Session], Awaitable[Session]] | None = None,
) -> tuple[Session, Container]:
    """Create and start a container by `begin`; again with other ports if one is in use.

    `moved` is called with the session once it has other ports, and returns it with what depends
    on them.
    """
    pinned = any(request.pinned for request in session.spec.ports)
    tries = 1
    while True:
        try:
            return session, await begin(session)
        except PortTakenError as error:
            if pinned or tries == PORT_TRIES:
                raise
            log.warning("taking other ports", session=session.internal_id, error=str(error))
        tries += 1
        await runtime.engine.remove(name_of(session))
        session = reservations.swap_ports(session)
        if moved is not None:
            session = await moved(session)


async def create(runtime: Runtime, session: Session) -> None:
    """Create a container that does not exist yet."""
    spec = container_spec(runtime, session)
    try:
        await runtime.engine.create(spec)
    except ContainerExistsError:
        # Only the remains of an undone attempt can have this name.
        await runtime.engine.remove(spec.name)
        await runtime.engine.create(spec)
    except EngineTimeoutError as error:
        try:
            await runtime.engine.inspect(spec.name)
        except ContainerGoneError:
            raise error from None


async def start_created(runtime: Runtime, session: Session) -> Container:
    """Start a container for the first time, also if the engine does not answer at once."""
    try:
        return await start_container(runtime, session)
    except EngineTimeoutError:
        found = await runtime.engine.inspect(name_of(session))
        if found.status is ContainerStatus.CREATED:
            raise
        return await start_container(runtime, session)


async def start_container(runtime: Runtime, session: Session) -> Container:
    """Start a container until its init waits; no-op if it runs.

    Up to FIREWALL_TRIES attempts while other programs hold the firewall. Then flows to its ports
    that were there before the engine published them are flushed, and what it sends is translated.
    """
    container = await _start_container(runtime, session)
    await _prepare_ports(runtime, session, container)
    return container


async def waiting_container(runtime: Runtime, session: Session) -> Container:
    """The container of a session, which others have started, once its init waits or it has ended.

    In contrast to `start_container`, which prepares its ports in the same way, it is not started
    again.
    """
    name = name_of(session)
    container = await runtime.engine.inspect(name)
    for _ in range(BEGINNING_TRIES):
        if container.init is not InitState.BEGINNING:
            break
        await runtime.clock.sleep(BEGINNING_STEP_SECONDS)
        container = await runtime.engine.inspect(name)
    await _prepare_ports(runtime, session, container)
    return container


async def _prepare_ports(runtime: Runtime, session: Session, container: Container) -> None:
    if container.waits:
        await runtime.sources.open(session, container)
        await runtime.forget_flows(session.ports)


async def _start_container(runtime: Runtime, session: Session) -> Container:
    name = name_of(session)
    channel = runtime.records.channel(session)
    wait = FIREWALL_FIRST_SECONDS
    for _ in range(FIREWALL_TRIES - 1):
        try:
            return await runtime.engine.start(name, channel)
        except FirewallFailedError as error:
            log.warning("not started, trying again", container=name, error=str(error))
            await runtime.clock.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            wait *= 2
    return await runtime.engine.start(name, channel)


@contextlib.asynccontextmanager
async def renaming(runtime: Runtime, session: Session) -> AsyncIterator[None]:
    """Give a prepared container the name of its session, best effort, beside the `with` body.

    If the record is lost, the name identifies the session.
    """
    if not session.prepared or session.state.ended:
        yield
        return
    name = f"rename-{session.internal_id}"
    task = asyncio.create_task(_rename(runtime, session), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _rename(runtime: Runtime, session: Session) -> None:
    name = container_name(session.internal_id)
    await runtime.clock.sleep(ANSWER_SECONDS)
    with contained("cannot rename a container: internal error"):
        try:
            await runtime.engine.rename(name_of(session), name)
        except AgentError as error:
            log.warning("cannot rename a container", container=name, error=str(error))


def container_spec(runtime: Runtime, session: Session) -> ContainerSpec:
    """The container of a session, or one to prepare."""
    spec = session.spec
    return ContainerSpec(
        internal_id=session.internal_id,
        agent_id=runtime.agent_id,
        image=spec.image,
        network_mode=spec.network_mode,
        ports=tuple(port for port in session.ports if not port.tls),
        bind_address=runtime.settings.bind_address,
        reservation=spec.reservation,
        limits=spec.limits,
        public_dir=str(runtime.records.public_dir(session)),
        init=str(runtime.init),
        record=encode_label(session),
        gpu_ids=session.gpu_ids,
        pids=runtime.pids_limit(spec),
        shm_bytes=_shm_bytes(spec),
        disk_bytes=runtime.disk_limit(spec),
        capabilities=spec.capabilities,
        prepared=session.is_template,
    )


def _shm_bytes(spec: SessionSpec) -> int:
    """The size of a session's /dev/shm, whose content counts as its memory."""
    return spec.shm_bytes or max(spec.limits.memory_bytes // 2, LEAST_SHM_BYTES)
