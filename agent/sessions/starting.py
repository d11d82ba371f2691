"""The start of a session, step by step. The game starts last.

    reserved → program resolved → recorded → created → started: its init waits → flows flushed
    → recorded as running, session.json published, lifetime armed → program handed over → executed

A restart has the same steps from "started" on, and so has a container that waits because somebody
else has started it: what follows does not depend on how the container came to wait.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

from agent.domain import runs
from agent.domain.deadlines import deadline_by
from agent.domain.engine import (
    Container,
    ContainerSpec,
    ContainerStatus,
    InitState,
    Start,
    container_name,
    name_of,
)
from agent.domain.environment import (
    check_arguments,
    check_environment,
    container_environment,
    injected_environment,
    longest_injected,
)
from agent.domain.errors import (
    ContainerExistsError,
    ContainerGoneError,
    EngineTimeoutError,
    FirewallFailedError,
    HandOverFailedError,
    PortTakenError,
)
from agent.domain.session import Deadline, Session
from agent.metrics.instruments import Phase, start_of
from agent.sessions.reservations import Reservations, StartSlots
from agent.sessions.runtime import Runtime
from agent.settings.model import AgentConfig
from agent.state.encoding import encode_label
from tiltyard.contract import SessionSpec
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

START_WAIT_SECONDS = 2.0  # Longest wait for a start slot
PORT_TRIES = 3  # Attempts, each with other ports, while the engine finds one in use
FIREWALL_TRIES = 4
FIREWALL_FIRST_SECONDS = 0.2
"""Mean first wait; doubled each time, with 50 % jitter: 2.1 s in all at most, which is below the
control plane's timeout of a start."""
BEGINNING_TRIES = 100
BEGINNING_STEP_SECONDS = 0.01  # Between two looks at an init that does not wait yet

Step = Callable[[str], Awaitable[None]]  # Called between the steps; raises to abort the start


def check_spec(settings: AgentConfig, spec: SessionSpec) -> None:
    """Check arguments and environment before anything is reserved; raises InvalidArgumentError."""
    check_arguments(spec.args)
    injected = longest_injected(
        settings.env_prefixes, spec.identity.session_id, settings.public_address, spec.ports
    )
    check_environment(spec.env, injected)


async def start(
    runtime: Runtime, reservations: Reservations, session: Session, step: Step
) -> Session:
    """Start a session that holds its reservation; returns it once its program is executed.

    A process that has already ended counts as started. After an error of the engine or the disk,
    or StartQueueFullError, the caller must undo the start.
    """
    async with _slot(runtime, reservations.start_slots, session):
        await step("start.reserved")
        program = await runtime.engine.program(session.spec.image, session.spec.args)
        session = _prepared(runtime, session).with_changes(program=program)
        await runtime.records.create(session, reservations.drain.now)
        await step("start.recorded")
        session, container = await _create_and_start(runtime, reservations, session, step)
        await step("start.waiting")
        with runtime.metrics.phase(Phase.EXECUTE, start_of(session), runtime.clock):
            session = runs.running(runtime.clock, session, container)
            session = session.with_changes(deadline=_deadline(runtime, session))
            await runtime.records.save(session)
            if session.deadline is not None:
                await runtime.records.publish(session, reservations.drain.now)
                runtime.deadlines.arm(session.internal_id, session.deadline)
            await step("start.saved")
            await hand_over(runtime, session, container)
        await step("start.handed")
        return session


async def start_container(runtime: Runtime, session: Session) -> Container:
    """Start a container until its init waits; no-op if it runs.

    Up to FIREWALL_TRIES attempts while other programs hold the firewall. Then flows to its ports
    that were there before the engine published them are flushed.
    """
    container = await _start_container(runtime, session)
    if container.waits:
        await runtime.forget_flows(session.ports)
    return container


async def waiting_container(runtime: Runtime, session: Session) -> Container:
    """The container of a session, which others have started, once its init waits or it has ended.

    Flows to its ports are flushed. In contrast to `start_container`, it is not started again.
    """
    name = name_of(session)
    container = await runtime.engine.inspect(name)
    for _ in range(BEGINNING_TRIES):
        if container.init is not InitState.BEGINNING:
            break
        await runtime.clock.sleep(BEGINNING_STEP_SECONDS)
        container = await runtime.engine.inspect(name)
    if container.waits:
        await runtime.forget_flows(session.ports)
    return container


async def hand_over(runtime: Runtime, session: Session, container: Container) -> None:
    """Hand a waiting container its program; returns once it is executed, or after a second.

    The session must have been recorded with this run: after a crash the record decides.

    Raises:
        ImageCannotRunError: The program cannot be executed.
        HandOverFailedError: The container did not wait, or the program is lost.
    """
    if not session.program:
        raise HandOverFailedError("hand over", "the arguments were lost with the record")
    env = container_environment(session.spec.env, _injected(runtime, session))
    channel = runtime.records.channel(session)
    await runtime.engine.hand_over(container, channel, Start(session.program, env))


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
    session = session.with_changes(host=runtime.settings.public_address)
    return session.with_changes(
        injected_env=_injected(runtime, session), deadline=_deadline(runtime, session)
    )


def _injected(runtime: Runtime, session: Session) -> dict[str, str]:
    """The injected environment of every run; a claim does not change it."""
    identity = session.spec.identity
    own_id = identity.session_id if session.standby is None else session.internal_id
    prefixes = runtime.settings.env_prefixes
    return injected_environment(prefixes, own_id, session.host, session.ports)


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
                await _create_durably(runtime, session)
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


async def _create_durably(runtime: Runtime, session: Session) -> None:
    """Create the container; meanwhile flush the record, which must be durable before its start."""
    name = f"flush-{session.internal_id}"
    flushing = asyncio.create_task(runtime.records.flush(session.internal_id), name=name)
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
        return await start_container(runtime, session)


def _container_spec(runtime: Runtime, session: Session) -> ContainerSpec:
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
        disk_bytes=runtime.disk_limit(spec),
    )
