"""The start of a session, step by step. The game starts last.

    reserved → program resolved → recorded → created → started: its init waits → flows flushed
    → recorded as running, session.json published, lifetime armed → program handed over → executed

A restart has the same steps from "started" on, and so has a container that waits because another
program has started it: the next steps do not depend on why the container waits. A session that
takes a prepared container begins there, too; its first record is the one of the running session.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from agent.domain.containers import runs
from agent.domain.containers.engine import Container, Start
from agent.domain.errors import HandOverFailedError, PortTakenError
from agent.domain.sessions.deadlines import deadline_by
from agent.domain.sessions.environment import (
    check_arguments,
    check_environment,
    container_environment,
    expanded_program,
    injected_environment,
    longest_injected,
    traced_environment,
)
from agent.domain.sessions.session import Deadline, Session
from agent.metrics.instruments import Phase, start_of
from agent.sessions import containers
from agent.sessions.reservations import Reservations, StartSlots
from agent.sessions.runtime import Runtime
from agent.settings.model import AgentConfig
from tiltyard.contract import SessionSpec

START_WAIT_SECONDS = 2.0  # Longest wait for a start slot
UNUSABLE = (HandOverFailedError, PortTakenError)
"""Errors of a start that concern the prepared container which it has taken."""

Step = Callable[[str], Awaitable[None]]  # Called between the steps; raises to abort the start


def check_spec(settings: AgentConfig, spec: SessionSpec) -> None:
    """Check arguments and environment before anything is reserved; raises InvalidArgumentError."""
    injected = longest_injected(
        settings.env_prefixes, spec.identity.session_id, settings.public_address, spec.ports
    )
    check_arguments(spec.args, injected)
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
        session = _with_environment(runtime, session).with_changes(program=program)
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


async def start_prepared(
    runtime: Runtime,
    reservations: Reservations,
    session: Session,
    container: Container,
    *,
    step: Step,
) -> Session:
    """Start a session in the prepared container that it has taken, without asking the engine.

    The container has waited for a while. UNUSABLE has the errors after which the session may start
    without the container, which may have executed the program even then.
    """
    await step("start.reserved")
    program = await runtime.engine.program(session.spec.image, session.spec.args)
    reservations.open_ports(session)
    await step("start.waiting")
    with runtime.metrics.phase(Phase.EXECUTE, start_of(session), runtime.clock):
        session = runs.running(runtime.clock, _with_environment(runtime, session), container)
        session = session.with_changes(program=program)
        await runtime.records.create_durably(session, reservations.drain.now)
        if session.deadline is not None:
            runtime.deadlines.arm(session.internal_id, session.deadline)
        await step("start.saved")
        runtime.usage.begin(session.made_for)
        await hand_over(runtime, session, container)
    await step("start.handed")
    return session


async def hand_over(runtime: Runtime, session: Session, container: Container) -> None:
    """Hand a waiting container its program; returns once it is executed, or after a second.

    The session must have been recorded with this run: after a crash the record decides.

    Raises:
        ImageCannotRunError: The program cannot be executed.
        HandOverFailedError: The container did not wait, or the program is lost.
    """
    if not session.program:
        raise HandOverFailedError("hand over", "the arguments were lost with the record")
    injected = _injected(runtime, session)
    program = expanded_program(session.program, session.spec.args, injected)
    env = traced_environment(session) | container_environment(session.spec.env, injected)
    channel = runtime.records.channel(session)
    start = Start(program, env, in_place=session.spec.image_init)
    await runtime.engine.hand_over(container, channel, start)


@contextlib.asynccontextmanager
async def _slot(runtime: Runtime, slots: StartSlots, session: Session) -> AsyncIterator[None]:
    account = session.spec.identity.account
    if session.standby is None:  # the pool has taken a standby's slot already
        with runtime.metrics.phase(Phase.QUEUE, start_of(session), runtime.clock):
            await slots.acquire(account, within=START_WAIT_SECONDS)
    try:
        yield
    finally:
        slots.release(account)


def _with_environment(runtime: Runtime, session: Session) -> Session:
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
    begins = start_of(session)
    metrics = runtime.metrics

    async def begin(session: Session) -> Container:
        reservations.tls_ports.open(session)
        with metrics.phase(Phase.CREATE, begins, runtime.clock):
            await _create_durably(runtime, session)
        await step("start.created")
        with metrics.phase(Phase.START, begins, runtime.clock):
            return await containers.start_created(runtime, session)

    async def moved(session: Session) -> Session:
        session = _with_environment(runtime, session)
        await runtime.records.save(session)
        await runtime.records.publish(session, reservations.drain.now)
        return session

    return await containers.on_free_ports(runtime, reservations, session, begin, moved=moved)


async def _create_durably(runtime: Runtime, session: Session) -> None:
    """Create the container; meanwhile flush the record, which must be durable before its start."""
    name = f"flush-{session.internal_id}"
    flushing = asyncio.create_task(runtime.records.flush(session.internal_id), name=name)
    try:
        await containers.create(runtime, session)
    finally:
        await flushing
