"""The beginning of a run: how a session changes with it. Pure.

A run begins at its hand-over. The session is recorded with it before, while the container waits.
"""

from agent.domain.clock import HostClock
from agent.domain.containers.engine import Container
from agent.domain.sessions.session import Session
from tiltyard.contract import State


def running(clock: HostClock, session: Session, container: Container) -> Session:
    """The session with its first run."""
    now = clock.time()
    return session.to(
        State.RUNNING,
        at=now,
        container=container.container,
        process=container.process,
        address=container.address,
        ipv6_address=container.ipv6_address,
        image_signal=container.stop_signal,
        start_time=now,
        boot_id=clock.boot_id,
    )


def next_run(clock: HostClock, session: Session, container: Container) -> Session:
    """The session with another run of its container, in the same state."""
    return session.with_next_run(container.process, container).with_changes(
        start_time=clock.time(), boot_id=clock.boot_id
    )


def restarted(clock: HostClock, session: Session, container: Container) -> Session:
    """The session with another run of its container, after a failed one."""
    again = next_run(clock, session, container)
    return again.to(State.RUNNING, at=clock.time(), restart_count=session.restart_count + 1)


def as_found(clock: HostClock, session: Session, container: Container | None) -> Session:
    """A live session, updated from its container after a restart of the agent.

    Without a container, or without its process, the recorded process may still live.
    """
    same_boot = session.boot_id in {"", clock.boot_id}
    process = session.process if same_boot else None
    if container is not None and not container.has_lost_process:
        process = container.process
    if process not in {None, session.process}:
        session = session.with_next_run(process, session)
    if container is not None:
        session = session.with_changes(
            container=container.container,
            address=container.address,
            ipv6_address=container.ipv6_address,
            image_signal=container.stop_signal or session.image_signal,
        )
    return session.with_changes(process=process)
