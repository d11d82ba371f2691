"""Hosts, claims and reports as the fake agent returns them."""

import copy
from collections.abc import Iterable, Mapping

from google.protobuf.duration_pb2 import Duration

from tests.support.controlplane.shapes import key_of
from tiltyard.agent.v1 import agent_pb2

IMAGES_IN_MESSAGE = 2000  # As agents send them
GIB = 1024**3
LIVE = {
    agent_pb2.STATE_CREATED,
    agent_pb2.STATE_RUNNING,
    agent_pb2.STATE_RESTARTING,
    agent_pb2.STATE_SHUTTINGDOWN,
}


def host_of(name: str) -> agent_pb2.Host:
    """Return a host with 64 cores, 64 GiB and room for 1,000 sessions."""
    return agent_pb2.Host(
        format=1,
        agent_id=name,
        version="0",
        public_address="192.0.2.1",
        latency_addresses=["192.0.2.1"],
        capacity=agent_pb2.Resources(nano_cpus=64 * 10**9, memory_bytes=64 * GIB),
        reserved=agent_pb2.Resources(),
        free_sessions=1000,
        port_range_first=20000,
        port_range_last=30000,
        free_tcp_ports=10001,
        free_udp_ports=10001,
        engine_available=True,
        engine_version="28.5.2",
        runc_version="1.3.3",
        kernel_version="6.12.0",
        platform="linux/amd64",
        start_slots=8,
    )


def host_with(
    host: agent_pb2.Host,
    orders: Iterable[agent_pb2.SetWarmPoolRequest],
    live: Iterable[agent_pb2.Session],
) -> agent_pb2.Host:
    """Return a copy of the host that has taken the orders of pools and counted the sessions."""
    found = copy.deepcopy(host)
    for order in orders:
        found.warm_pools.add(pool_id=order.pool_id, revision=order.revision, size=order.size)
    for session in live:
        found.reserved.nano_cpus += session.reservation.nano_cpus
        found.reserved.memory_bytes += session.reservation.memory_bytes
        found.free_sessions -= 1
    return found


def image_batches(sizes: Mapping[str, int]) -> list[agent_pb2.ImageBatch]:
    """Return the messages that list the images of a host; `sizes` are in bytes."""
    names = sorted(sizes)
    step = IMAGES_IN_MESSAGE
    parts = [names[first : first + step] for first in range(0, len(names), step)] or [[]]
    batches = [
        agent_pb2.ImageBatch(images=part, sizes=[sizes[image] for image in part]) for part in parts
    ]
    batches[0].first = True
    batches[-1].last = True
    return batches


def take_prepared(host: agent_pb2.Host, spec: agent_pb2.SessionSpec) -> None:
    """Count one prepared container less if a start of this spec finds one."""
    for shape in host.prepared:
        if shape.kept and shape.key == key_of(spec):
            shape.kept -= 1


def is_claimable(session: agent_pb2.Session, request: agent_pb2.Claim) -> bool:
    """Return whether a standby is ready, or already claimed by this request."""
    if session.state not in LIVE:
        return False
    if not session.warm_pool:
        return _names(session.identity) == _names(request.identity)
    return request.again or (session.HasField("ready_time") and not session.in_doubt)


def is_known_standby(
    session: agent_pb2.Session, request: agent_pb2.Claim, incarnation: str
) -> bool:
    """Return whether a claim names the newest report of a standby."""
    if not session.warm_pool or request.known_incarnation != incarnation:
        return False
    return request.known_sequence == session.sequence


def claim_result(session: agent_pb2.Session, *, is_known: bool) -> agent_pb2.ClaimResult:
    """Return the result of a claim, with its changes alone if the caller knows the standby."""
    result = agent_pb2.ClaimResult()
    if is_known:
        name = "TILTYARD_SESSION_ID"
        result.claimed.sequence = session.sequence
        result.claimed.injected_env[name] = session.injected_env[name]
    else:
        result.session.CopyFrom(session)
    return result


def _names(identity: agent_pb2.Identity) -> tuple[str, str, str]:
    return identity.account, identity.session_id, identity.application


def bindings_of(
    session: agent_pb2.Session, others: Iterable[agent_pb2.BoundPort]
) -> agent_pb2.GetBindingsResponse:
    """Return the ports of a session, all of them unbound until it is ready."""
    if session.HasField("ready_time"):
        return agent_pb2.GetBindingsResponse()
    unbound = [
        agent_pb2.UnboundPort(
            protocol=port.protocol,
            container_port=port.container_port,
            own_port=port.container_port,
        )
        for port in session.ports
    ]
    return agent_pb2.GetBindingsResponse(unbound=unbound, others=others)


def report_of(session: agent_pb2.Session, log: bytes) -> agent_pb2.GetReportResponse:
    """Return the report of a session that failed once, and later was stopped."""
    begin = session.create_time
    end = session.end_time
    run = agent_pb2.FailedRun(
        start_time=begin, end_time=begin, exit_code=139, restart_delay=Duration(seconds=1)
    )
    states = (
        agent_pb2.STATE_CREATED,
        agent_pb2.STATE_RUNNING,
        agent_pb2.STATE_RESTARTING,
        agent_pb2.STATE_RUNNING,
        agent_pb2.STATE_SHUTTINGDOWN,
    )
    timeline = [agent_pb2.Moment(state=state, time=begin) for state in states]
    timeline.append(agent_pb2.Moment(state=session.state, time=end))
    report = agent_pb2.Report(
        format=1,
        internal_id=session.internal_id,
        state=session.state,
        end_reason=session.end_reason,
        create_time=begin,
        end_time=end,
        exit_code=143,
        signal=15,
        restart_count=1,
        failed_runs=[run],
        timeline=timeline,
        cpu_time=Duration(seconds=812, nanos=500_000_000),
        peak_memory_bytes=100 * 2**20,
        stop=agent_pb2.StopResult(signal="SIGTERM", delivered=True),
    )
    return agent_pb2.GetReportResponse(report=report, log=log)
