"""Shapes of sessions as the fake agent reads them in requests."""

from tiltyard.agent.v1 import agent_pb2
from tiltyard.agent.wire import CAPABILITIES, NETWORK_MODES, PROTOCOLS
from tiltyard.contract import Identity, PortRequest, Resources, SessionSpec, shape_key

_PROTOCOLS = {number: protocol for protocol, number in PROTOCOLS.items()}
_MODES = {number: mode for mode, number in NETWORK_MODES.items()}
_CAPABILITIES = {number: each for each, number in CAPABILITIES.items()}


def shape_of(spec: agent_pb2.SessionSpec) -> SessionSpec | None:
    """Return the shape of a spec; None for a session that can use no prepared container."""
    return SessionSpec(
        identity=Identity(spec.identity.account, "", "", "", ""),
        image=spec.image,
        network_mode=_MODES[spec.network_mode],
        reservation=_resources_of(spec.reservation),
        limits=_resources_of(spec.limits),
        ports=tuple(map(_port_of, spec.ports)),
        disk_bytes=spec.disk_bytes,
        pids=spec.pids,
        shm_bytes=spec.shm_bytes,
        capabilities=tuple(sorted(_CAPABILITIES[number] for number in spec.capabilities)),
    ).shape


def key_of(spec: agent_pb2.SessionSpec) -> str:
    """Return the key of a spec's shape; "" if it has none."""
    shape = shape_of(spec)
    return "" if shape is None else shape_key(shape)


def _resources_of(resources: agent_pb2.Resources) -> Resources:
    return Resources(resources.nano_cpus, resources.memory_bytes, resources.gpus)


def _port_of(port: agent_pb2.PortRequest) -> PortRequest:
    protocol = _PROTOCOLS[port.protocol]
    return PortRequest(port.container_port, protocol, port.tls, port.pinned_host_port)
