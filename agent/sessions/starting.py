"""The start of a session, step by step."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from agent.domain.deadlines import deadline_by
from agent.domain.engine import Container, ContainerSpec, ContainerStatus, container_name, name_of
from agent.domain.environment import (
    check_environment,
    container_environment,
    injected_environment,
    longest_injected,
)
from agent.domain.errors import (
    AgentError,
    ContainerExistsError,
    ContainerGoneError,
    EngineTimeoutError,
    EngineUnavailableError,
    FirewallFailedError,
    PortTakenError,
)
from agent.domain.session import Deadline, Session
from agent.metrics.instruments import Phase, start_of
from agent.sessions.reservations import Reservations, StartSlots
from agent.sessions.runtime import Runtime
from agent.settings.model import AgentConfig
from agent.state.encoding import encode_label
from tiltyard.contract import NetworkMode, SessionSpec, State
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

START_WAIT_SECONDS = 2.0  # Longest wait for a start slot
PORT_TRIES = 3  # Attempts, each with other ports, while the engine finds one in use
FIREWALL_TRIES = 4
FIREWALL_FIRST_SECONDS = 0.2
"""Mean first wait; doubled each time, with 50 % jitter: 2.1 s in all at most, which is below the
control plane's timeout of a start."""

Step = Callable[[str], Awaitable[None]]  # Called between the steps; raises to abort the start


def check_spec(settings: AgentConfig, spec: SessionSpec) -> None:
    """Check the environment before anything is reserved; raises InvalidArgumentError."""
    injected = longest_injected(
        settings.env_prefixes, spec.identity.session_id, settings.public_address, spec.ports
    )
    check_environment(spec.env, injected)


async def start(
    runtime: Runtime, reservations: Reservations, session: Session, step: Step
) -> Session:
    """Record, create and start a session that holds its reservation; returns it running.

    A process that has already ended counts as started. After an error of the engine or the disk,
    or StartQueueFullError, the caller must undo the start.
    """
    async with _slot(runtime, reservations.start_slots, session):
        await step("start.reserved")
        session = _prepared(runtime, session)
        await runtime.records.create(session, reservations.drain.now)
        await step("start.recorded")
        session, container = await _create_and_start(runtime, reservations, session, step)
        await step("start.started")
        session = running(runtime, session, container, deadline=_deadline(runtime, session))
        await runtime.records.save(session)
        if session.deadline is not None:
            await runtime.records.publish(session, reservations.drain.now)
        await step("start.saved")
        return session


def running(
    runtime: Runtime, session: Session, container: Container, *, deadline: Deadline | None
) -> Session:
    """The session after the start of its container."""
    start_time = container.start_time or runtime.clock.time()
    return session.to(
        State.RUNNING,
        at=start_time,
        container=container.container,
        process=container.process,
        address=container.address,
        start_time=start_time,
        boot_id=runtime.clock.boot_id,
        deadline=deadline,
    )


async def as_found(runtime: Runtime, session: Session, container: Container | None) -> Session:
    """A live session, updated from its container after a restart of the agent.

    Without a container, or without its process, the recorded process may still live.
    """
    same_boot = session.boot_id in {"", runtime.clock.boot_id}
    process = session.process if same_boot else None
    if container is not None and not container.has_lost_process:
        process = container.process
    if process not in {None, session.process}:
        await runtime.forget_flows(session.ports, forwarded=False)
        session = session.with_next_run(process, session.address)
    if container is not None:
        session = session.with_changes(container=container.container, address=container.address)
    return session.with_changes(process=process)


def running_again(runtime: Runtime, session: Session, container: Container) -> Session:
    """The session after a restart of its container."""
    return session.with_next_run(container.process, container.address).to(
        State.RUNNING,
        at=container.start_time or runtime.clock.time(),
        start_time=container.start_time,
        boot_id=runtime.clock.boot_id,
        restart_count=session.restart_count + 1,
    )


async def start_container(runtime: Runtime, session: Session) -> Container:
    """Start a container; up to FIREWALL_TRIES attempts while other programs hold the firewall.

    Flows to its ports that were there before the engine published them are flushed at once. In the
    host's network nothing is published, so they lead to the game.
    """
    name = name_of(session)
    wait = FIREWALL_FIRST_SECONDS
    flush = None
    if session.spec.network_mode is NetworkMode.BRIDGE:
        flush = partial(runtime.forget_flows, session.ports, forwarded=False)
    for _ in range(FIREWALL_TRIES - 1):
        try:
            return await runtime.engine.start(name, flush)
        except FirewallFailedError as error:
            log.warning("not started, trying again", container=name, error=str(error))
            await runtime.clock.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            wait *= 2
    return await runtime.engine.start(name, flush)


async def start_again(runtime: Runtime, session: Session) -> Container | None:
    """Restart a session's container; None if the outcome is unknown."""
    try:
        if session.process is None:  # else it ran when it was adopted and may have players
            await runtime.forget_flows(session.ports, forwarded=True)
        await start_container(runtime, session)
    except (EngineUnavailableError, EngineTimeoutError, FirewallFailedError) as error:
        log.warning("cannot restart yet", session=session.internal_id, error=str(error))
        return None
    await runtime.failpoint("restart.started")
    try:
        return await runtime.engine.inspect(name_of(session))
    except AgentError as error:
        log.warning("restarted, state unknown", session=session.internal_id, error=str(error))
        return None


@contextlib.asynccontextmanager
async def _slot(runtime: Runtime, slots: StartSlots, session: Session) -> AsyncIterator[None]:
    start = start_of(session)
    metrics = runtime.metrics
    account = session.spec.identity.account
    with metrics.starting(start, runtime.clock):
        if session.standby is None:  # the pool has taken a standby's slot already
            with metrics.phase(Phase.QUEUE, start, runtime.clock):
                await slots.acquire(account, within=START_WAIT_SECONDS)
        try:
            yield
        finally:
            slots.release(account)


def _prepared(runtime: Runtime, session: Session) -> Session:
    """The session with its injected environment and a preliminary deadline."""
    settings = runtime.settings
    injected = injected_environment(
        settings.env_prefixes,
        session.spec.identity.session_id,
        settings.public_address,
        session.ports,
    )
    return session.with_changes(
        injected_env=injected, host=settings.public_address, deadline=_deadline(runtime, session)
    )


def _deadline(runtime: Runtime, session: Session) -> Deadline | None:
    ttl = session.spec.ttl
    return None if ttl is None else deadline_by(runtime.clock, ttl)


async def _create_and_start(
    runtime: Runtime, reservations: Reservations, session: Session, step: Step
) -> tuple[Session, Container]:
    """Retry with other ports while the engine finds one in use."""
    pinned = any(request.pinned for request in session.spec.ports)
    begins = start_of(session)
    metrics = runtime.metrics
    tries = 1
    while True:
        try:
            reservations.tls_ports.open(session)
            with metrics.phase(Phase.CREATE, begins, runtime.clock):
                await _create_and_flush(runtime, session)
            await step("start.created")
            with metrics.phase(Phase.START, begins, runtime.clock):
                container = await _start_created(runtime, session)
        except PortTakenError as error:
            if pinned or tries == PORT_TRIES:
                raise
            log.warning("taking other ports", session=session.internal_id, error=str(error))
            tries += 1
            await runtime.engine.remove(container_name(session.internal_id))
            session = _prepared(runtime, reservations.swap_ports(session))
            await runtime.records.save(session)
            await runtime.records.publish(session, reservations.drain.now)
        else:
            return session, container


async def _create_and_flush(runtime: Runtime, session: Session) -> None:
    """Create the container; flush the record and the ports' flows, as a start needs, meanwhile."""
    flushing = asyncio.gather(
        runtime.records.flush(session.internal_id),
        runtime.forget_flows(session.ports, forwarded=True),
    )
    try:
        await _create(runtime, session)
    finally:
        await flushing


async def _create(runtime: Runtime, session: Session) -> None:
    spec = _container_spec(runtime, session)
    name = container_name(session.internal_id)
    try:
        await runtime.engine.create(spec)
    except ContainerExistsError:
        # Only the remains of an undone attempt can have this name.
        await runtime.engine.remove(name)
        await runtime.engine.create(spec)
    except EngineTimeoutError as error:
        try:
            await runtime.engine.inspect(name)
        except ContainerGoneError:
            raise error from None


async def _start_created(runtime: Runtime, session: Session) -> Container:
    try:
        return await start_container(runtime, session)
    except EngineTimeoutError:
        found = await runtime.engine.inspect(container_name(session.internal_id))
        if found.status is ContainerStatus.CREATED:
            raise
        await runtime.forget_flows(session.ports, forwarded=False)
        return found


def _container_spec(runtime: Runtime, session: Session) -> ContainerSpec:
    spec = session.spec
    return ContainerSpec(
        internal_id=session.internal_id,
        agent_id=runtime.agent_id,
        image=spec.image,
        args=spec.args,
        env=container_environment(spec.env, session.injected_env),
        network_mode=spec.network_mode,
        ports=tuple(port for port in session.ports if not port.tls),
        bind_address=runtime.settings.bind_address,
        reservation=spec.reservation,
        limits=spec.limits,
        public_dir=str(runtime.records.public_dir(session.internal_id)),
        record=encode_label(session),
        gpu_ids=session.gpu_ids,
        disk_bytes=runtime.disk_limit(spec),
    )
