"""Whether a host takes on one more session."""

from agent.domain.errors import Draining
from agent.domain.session import Session, SessionSpec, Standby
from agent.sessions import starting
from agent.sessions.host import Host


def admit(
    host: Host, internal_id: str, spec: SessionSpec, standby: Standby | None = None
) -> Session:
    """Reserve all that a session asks for, in one step of the event loop, or nothing.

    Raises what StartSession of agent.proto names for a host that cannot take it.
    """
    if host.drain.now.draining:
        raise Draining
    host.disks.check()
    host.policy.check_spec(spec)
    starting.check_spec(host, spec)
    host.tls_ports.check(spec)
    gpu_ids = host.capacity.reserve(internal_id, spec.reservation)
    try:
        ports = host.ports.reserve(internal_id, spec.ports, in_host=spec.in_host)
    except Exception:
        host.capacity.release(internal_id)
        raise
    return Session(
        internal_id,
        spec,
        create_time=host.clock.time(),
        ports=ports,
        gpu_ids=gpu_ids,
        standby=standby,
    )
